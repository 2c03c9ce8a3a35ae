"""`python -m benchmarks harness`: what is rerun after a patch, whether the result is correct, and what that saves."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.soundness.notebooks.notebook import NAMES
from tests.support.soundness.trap import TRAPS, Trap

from benchmarks.harness import mending, notebooks, programs, traps
from benchmarks.harness.figures import Figures, of_mending, of_notebooks, of_programs, of_traps
from benchmarks.harness.outcome import Outcome, Played
from benchmarks.harness.report import goals_text, mending_text, notebooks_text, programs_text, traps_text
from benchmarks.harness.rivals import playing
from benchmarks.runtime.machine import machine_line
from benchmarks.runtime.process_tree import adopt_orphans

PARTS = ("traps", "programs", "notebooks", "mending")
SYSTEMS = (traps.SYSTEM, *(rival.name for rival in playing.RIVALS))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; repeatable")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="traps on this only; repeatable")
    parser.add_argument("--trap", default="", help="part of a trap's name")
    parser.add_argument("--cases", type=int, default=1000, help="random histories, each with one patch")
    parser.add_argument("--notebook", action="append", choices=NAMES, help="mend only this one; repeatable")
    parser.add_argument("--edits", type=int, default=5, help="patches of each notebook, 5 at most")
    parser.add_argument(
        "--json", type=Path, default=Path("benchmarks/results/harness.json"), help="where data goes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the tables to stdout, progress to stderr."""
    adopt_orphans()
    print(machine_line())
    figures: dict[str, float] = {}
    data: dict[str, object] = {}
    for part in PARTS:
        if not arguments.part or part in arguments.part:
            text, found, cases = _measure(part, arguments)
            print(f"\n{text}", flush=True)
            figures.update(found)
            data[part] = cases
    print(f"\n{goals_text(figures)}")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"machine": machine_line(), "figures": figures, **data}, indent=1))


def _measure(part: str, arguments: argparse.Namespace) -> tuple[str, Figures, list[dict[str, object]]]:
    if part == "traps":
        played = _play([trap for trap in TRAPS if arguments.trap in trap.name], arguments.system or SYSTEMS)
        return traps_text(played), of_traps(played), [asdict(one) for one in played]
    if part == "programs":
        cases = programs.measure(range(arguments.cases))
        return programs_text(cases), of_programs(cases), [asdict(one) for one in cases]
    if part == "notebooks":
        patched = notebooks.measure(arguments.edits, _show)
        return notebooks_text(patched), of_notebooks(patched), [asdict(one) for one in patched]
    mended = mending.measure(arguments.notebook or NAMES, arguments.edits, _show)
    return mending_text(mended), of_mending(mended), [asdict(one) for one in mended]


def _play(chosen: Sequence[Trap], systems: Sequence[str]) -> list[Played]:
    ours = [traps.play(chosen, _show_outcome)] if traps.SYSTEM in systems else []
    rivals = [rival for rival in playing.RIVALS if rival.name in systems]
    return [*ours, *(playing.play(rival, chosen, _show_outcome) for rival in rivals)]


def _show_outcome(system: str, outcome: Outcome) -> None:
    print(f"{system} {outcome.verdict} {outcome.trap} {outcome.note}".rstrip(), file=sys.stderr)


def _show(one: object) -> None:
    print(one, file=sys.stderr)
