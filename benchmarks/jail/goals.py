"""What a jail may cost, checked against a run. A goal that was not measured is said to be open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.jail.cost import cost
from benchmarks.runtime.sample import Sample

MS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Goal:
    """At most so many seconds more, or so many times as much, than another; in each of the figures."""

    text: str
    measure: str
    contender: str
    other: str
    figures: tuple[str, ...]
    added: float | None = None
    ratio: float | None = None

    def verdict(self, samples: Sequence[Sample]) -> Literal["reached", "missed", "open"]:
        found = [cost(samples, self.measure, figure, self.contender, self.other) for figure in self.figures]
        if self.added is not None:
            bound, measured = self.added, [one.added if one else None for one in found]
        else:
            bound, measured = self.ratio or 0.0, [one.ratio if one else None for one in found]
        values = [value for value in measured if value is not None]
        if len(values) < len(found):
            return "open"
        return "reached" if max(values) <= bound else "missed"


def _start(level: str) -> Goal:
    return Goal(
        text=f"{level} adds at most 25 ms to a start",
        measure="start",
        contender=level,
        other="cenote none",
        figures=("wall",),
        added=25 * MS,
    )


def _cell(level: str, measure: str, percent: int) -> Goal:
    return Goal(
        text=f"{level} costs at most {percent} % of `{measure}`, of its time and its CPU time",
        measure=measure,
        contender=level,
        other="no sandbox",
        figures=("wall", "CPU"),
        ratio=1 + percent / 100,
    )


GOALS = tuple(
    goal
    for level in ("cenote strict", "cenote landlock")
    for goal in (
        _start(level),
        _cell(level, "loop", 5),
        _cell(level, "matmul", 5),
        _cell(level, "calls", 10),
        _cell(level, "files", 10),
        _cell(level, "open", 10),
    )
)
