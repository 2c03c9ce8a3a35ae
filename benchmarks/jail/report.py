"""A run as text for people and as plain data for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.jail.cells import CELLS
from benchmarks.jail.cost import Cost, cost
from benchmarks.jail.goals import GOALS
from benchmarks.jail.parameters import Parameters
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.report import format_ratio, format_value
from benchmarks.runtime.sample import Sample

UNWALLED = "no sandbox"
NAME_WIDTH = 18
CELL_WIDTH = 14
TITLES = {
    "start": "constructor to the first result; the rivals start a Python, Cenote forks one",
    "assign": "round trip of `x = 1`",
    **{cell.name: cell.title for cell in CELLS},
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """All data that a report is made of.

    bare: sandbox -> the same without isolation. absent: sandbox -> why it does not run here.
    """

    machine: str
    parameters: Parameters
    bare: Mapping[str, str]
    absent: Mapping[str, str]
    samples: Sequence[Sample]

    def added(self, measure: str, name: str) -> Cost | None:
        """Wall time compared with the same sandbox without isolation."""
        return cost(self.samples, measure, "wall", name, self.bare[name])

    def times(self, measure: str, figure: str, name: str) -> Cost | None:
        """A figure compared with plain Python's."""
        return cost(self.samples, measure, figure, name, UNWALLED)


Row = Callable[[Run, str, str], Sequence[str]]
"""Formats the cells of one line from a run, a measure and a sandbox."""


def render_text(run: Run) -> str:
    """One block per measure, one line per sandbox."""
    blocks = [
        _block(measure, title, run, ("median", "least", "walls add"), _passage)
        if measure in ("start", "assign")
        else _block(measure, title, run, ("wall", "x plain", "CPU", "x plain"), _work)
        for measure, title in TITLES.items()
    ]
    absent = [f"{name} does not run here: {reason}" for name, reason in run.absent.items()]
    goals = [f"{goal.verdict(run.samples):<8} {goal.text}" for goal in GOALS]
    return "\n\n".join([run.machine, *blocks, *absent, "\n".join(["goals", *goals])]) + "\n"


def _block(measure: str, title: str, run: Run, heads: Sequence[str], row: Row) -> str:
    lines = [_line(name, row(run, measure, name)) for name in run.bare]
    return "\n".join([f"{measure}: {title}", _line("", heads), *lines])


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{NAME_WIDTH}}{''.join(f'{cell:>{CELL_WIDTH}}' for cell in cells)}".rstrip()


def _passage(run: Run, measure: str, name: str) -> list[str]:
    found = run.added(measure, name)
    if found is None:
        return ["not taken"]
    added = _seconds(found.added) if run.bare[name] != name else ""
    return [_seconds(found.median), _seconds(found.least), added]


def _work(run: Run, measure: str, name: str) -> list[str]:
    return [text for figure in ("wall", "CPU") for text in _beside_plain(run.times(measure, figure, name))]


def _beside_plain(found: Cost | None) -> list[str]:
    if found is None:
        return ["not taken", ""]
    return [_seconds(found.median), format_ratio(found.ratio) if found.ratio is not None else ""]


def _seconds(value: float | None) -> str:
    return "" if value is None else format_value(value, Unit.SECONDS)


def render_data(run: Run) -> dict[str, Any]:  # Any: JSON
    """The report as plain data, including every sample."""
    return {
        "machine": run.machine,
        "parameters": asdict(run.parameters),
        "bare": dict(run.bare),
        "absent": dict(run.absent),
        "goals": [{"goal": goal.text, "verdict": goal.verdict(run.samples)} for goal in GOALS],
        "samples": [asdict(sample) for sample in run.samples],
    }
