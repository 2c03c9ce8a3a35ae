"""Limits on the cost of a jail, checked against a run. A goal that was not measured is reported as open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.jail.cost import cost
from benchmarks.runtime.sample import Sample

MS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A figure at most so many seconds above another, or at most so many times as large."""

    text: str
    measure: str
    contender: str
    other: str
    figure: str
    added: float | None = None
    ratio: float | None = None

    def verdict(self, samples: Sequence[Sample]) -> Literal["reached", "missed", "open"]:
        found = cost(samples, self.measure, self.figure, self.contender, self.other)
        if found is None or found.added is None or found.ratio is None:
            return "open"
        fast = self.added is None or found.added <= self.added
        return "reached" if fast and (self.ratio is None or found.ratio <= self.ratio) else "missed"


def _start(level: str) -> Goal:
    return Goal(
        text=f"{level} adds at most 25 ms to a start",
        measure="start",
        contender=level,
        other="cenote none",
        figure="wall",
        added=25 * MS,
    )


def _cell(level: str, measure: str, percent: int) -> Goal:
    """Judged by CPU time, which includes supervisors and excludes unrelated processes of the machine."""
    return Goal(
        text=f"{level} takes at most {percent} % more CPU time for `{measure}`",
        measure=measure,
        contender=level,
        other="no sandbox",
        figure="CPU",
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
