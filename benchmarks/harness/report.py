"""Formats results as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.figures import GOALS, Figures, of_mending, of_notebooks, of_programs
from benchmarks.harness.mending import WAYS, Mended
from benchmarks.harness.notebooks import Patched
from benchmarks.harness.outcome import VERDICTS, Played
from benchmarks.harness.programs import Case
from benchmarks.runtime.report import format_ratio

NAME_WIDTH = 22
CELL_WIDTH = 18
KINDS = ("written", "tokens", "uncached", "price", "CPU")
"""Kinds of changes, as figures name them."""


def row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{NAME_WIDTH}}{''.join(f'{cell:>{CELL_WIDTH}}' for cell in cells)}".rstrip()


def traps_text(played: Sequence[Played]) -> str:
    """One line per system. cells: counted for correct traps only, so that doing nothing does not look cheap."""
    lines = [
        "traps: one mechanism each; the state after the patch against a full run",
        row("", [*VERDICTS, "cells"]),
    ]
    for one in played:
        cells = sum(outcome.cells for outcome in one.outcomes if outcome.verdict == "right")
        counts = [str(one.count(verdict)) for verdict in VERDICTS]
        lines.append(
            f"{one.system:<{NAME_WIDTH}}{one.missing}"
            if one.missing
            else row(one.system, [*counts, str(cells)])
        )
    return "\n".join([*lines, *(f"  {one.system}: {one.asked}" for one in played)])


def programs_text(cases: Sequence[Case]) -> str:
    figures = of_programs(cases)
    stopped = sum(case.stopped for case in cases)
    return "\n".join(
        [
            f"random histories: {len(cases)} patches, {stopped} stopped before an effect outside",
            row("as a full run", [_percent(figures["programs sound"])]),
            row("run / affected", [format_ratio(figures["programs ratio"])]),
            row("run / behind change", [_percent(figures["programs share run"])]),
        ]
    )


def notebooks_text(patched: Sequence[Patched]) -> str:
    """One line per notebook with sums over its patches, then a total."""
    heads = ("applied", "sound", "steps run", "affected", "of", "time saved", "CPU / full")
    lines = ["notebooks: patches of real notebooks", row("", heads)]
    names = list(dict.fromkeys(one.notebook for one in patched))
    for name in names:
        lines.append(_notebook(name, [one for one in patched if one.notebook == name]))
    return "\n".join([*lines, _notebook("all", patched)])


def _notebook(name: str, patched: Sequence[Patched]) -> str:
    figures = of_notebooks(patched)
    applied = [one for one in patched if one.applied]
    counts = [f"{len(applied)} of {len(patched)}", f"{sum(one.sound for one in applied)}"]
    if not applied:
        return row(name, [*counts, patched[0].status[:CELL_WIDTH]])
    steps = [
        sum(one.rerun for one in applied),
        sum(one.affected for one in applied),
        sum(one.steps for one in applied),
    ]
    saved = _percent(figures["notebooks seconds saved"])
    return row(
        name, [*counts, *map(str, steps), saved, format_ratio(figures["notebooks CPU, times a full run"])]
    )


def mending_text(mended: Sequence[Mended]) -> str:
    figures = of_mending(mended)
    changes = len([one for one in mended if one.way == WAYS[0]])
    lines = [
        f"an agent changes one step of a notebook, {changes} times",
        row("", ["written", "tokens", "price uncached", "price cached", "CPU s"]),
    ]
    for way in WAYS:
        values = [figures[f"{kind}, {way}"] for kind in KINDS]
        base = [figures[f"{kind}, {WAYS[0]}"] for kind in KINDS]
        cells = [*(f"{value:,.0f}" for value in values[:-1]), f"{values[-1]:.2f}"]
        ratios = [format_ratio(value / one) if one else "" for value, one in zip(values, base, strict=True)]
        lines.append(row(way, [f"{cell} {ratio:>6}" for cell, ratio in zip(cells, ratios, strict=True)]))
    lines.append("tokens of all calls, the notebook's included; of the last prompt:")
    for way in WAYS:
        mine = [one for one in mended if one.way == way]
        where = ", ".join(f"{part} {sum(one.where[part] for one in mine):,}" for part in mine[0].where)
        lines.append(f"  {way}: {sum(one.whole.total for one in mine):,}; {where}")
    failed = [one for one in mended if one.outcome != "success"]
    return "\n".join(
        [*lines, *(f"  {one.notebook}, {one.reason}, {one.way}: {one.outcome}" for one in failed)]
    )


def goals_text(figures: Figures) -> str:
    return "\n".join(["goals", *(f"{goal.verdict(figures):<8} {goal.text}" for goal in GOALS)])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
