"""A run as text for people and as plain data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.runtime.goals import Goal
from benchmarks.runtime.measure import Heading, Unit
from benchmarks.runtime.sample import Sample
from benchmarks.runtime.summary import Key, Summary, summarise

NAME_WIDTH = 24
CELL_WIDTH = 20
REASON_WIDTH = 80
TINY_RATIO = 0.01


@dataclass(frozen=True, kw_only=True)
class Run:
    """All data that a report is made of. reference: the contender that ratios are relative to."""

    machine: str
    parameters: Mapping[str, object]
    measures: Sequence[Heading]
    goals: Sequence[Goal]
    contenders: Sequence[str]
    reference: str
    samples: Sequence[Sample]


def format_value(value: float, unit: Unit) -> str:
    """Three significant digits in the unit that makes them readable."""
    if unit is Unit.COUNT:
        return f"{value:.0f}"
    if unit is Unit.TIMES:
        return f"{value:.2f}x"
    scales = (
        ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
        if unit is Unit.SECONDS
        else ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    )
    scale, name = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    return f"{_digits(value / scale)} {name}"


def format_ratio(ratio: float) -> str:
    """Ratios below a hundredth only show that the two values are not comparable, so their digits are omitted."""
    return f"{_digits(ratio)}x" if ratio >= TINY_RATIO else f"<{TINY_RATIO}x"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def render_text(run: Run) -> str:
    """One block per measure, one line per contender, ratios to the reference beside each value."""
    summaries = summarise(run.samples, run.reference)
    blocks = [_block(measure, run, summaries) for measure in run.measures]
    return "\n\n".join([run.machine, *blocks, _goals(run.goals, summaries)]) + "\n"


def _block(measure: Heading, run: Run, summaries: Mapping[Key, Summary]) -> str:
    head = " " * NAME_WIDTH + "".join(f"{figure:>{CELL_WIDTH}}" for figure in measure.figures)
    taken = [name for name in run.contenders if not measure.only or name in measure.only]
    lines = [_line(measure, name, run, summaries) for name in taken]
    return "\n".join([f"{measure.name}: {measure.title}", head.rstrip(), *lines])


def _line(measure: Heading, contender: str, run: Run, summaries: Mapping[Key, Summary]) -> str:
    cells = []
    for figure, unit in measure.figures.items():
        summary = summaries.get((measure.name, figure, contender))
        cells.append(_cell(summary, unit, with_ratio=contender != run.reference) if summary else "")
    text = "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells).rstrip()
    return f"{contender:<{NAME_WIDTH}}{text or '  ' + _missing(measure, contender, run.samples)}"


def _cell(summary: Summary, unit: Unit, *, with_ratio: bool) -> str:
    value = format_value(summary.median, unit)
    if not with_ratio or summary.ratio is None or unit in (Unit.COUNT, Unit.TIMES):
        return value
    return f"{value} {format_ratio(summary.ratio)}"


def _missing(measure: Heading, contender: str, samples: Iterable[Sample]) -> str:
    found = [s for s in samples if (s.measure, s.contender) == (measure.name, contender)]
    return f"{found[-1].outcome}: {found[-1].reason}"[:REASON_WIDTH] if found else "not taken"


def _goals(goals: Sequence[Goal], summaries: Mapping[Key, Summary]) -> str:
    lines = [f"{goal.verdict(summaries):<8} {goal.text}" for goal in goals]
    return "\n".join(["goals", *lines])


def render_data(run: Run) -> dict[str, Any]:  # Any: JSON
    """The report as plain data, including every sample."""
    summaries = summarise(run.samples, run.reference)
    return {
        "machine": run.machine,
        "reference": run.reference,
        "parameters": dict(run.parameters),
        "units": {m.name: {figure: unit.value for figure, unit in m.figures.items()} for m in run.measures},
        "summaries": [
            {"measure": key[0], "figure": key[1], "contender": key[2], **asdict(summary)}
            for key, summary in summaries.items()
        ],
        "goals": [{"goal": goal.text, "verdict": goal.verdict(summaries)} for goal in run.goals],
        "samples": [asdict(sample) for sample in run.samples],
    }
