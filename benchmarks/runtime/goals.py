"""Cenote's goals, checked against a run. A goal that was not measured is reported as open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.runtime.summary import Key, Summary

MS = 1e-3
MB = 10**6


@dataclass(frozen=True, kw_only=True)
class Goal:
    """`at_most` bounds Cenote's own median; `times_better` is a lower bound on a rival's ratio to it.

    rival_figure: the rival's figure to compare if its name differs; medians are compared then.
    """

    text: str
    measure: str
    figure: str
    at_most: float | None = None
    at_least: float | None = None
    rival: str | None = None
    rival_figure: str = ""
    times_better: float = 0.0

    def verdict(self, summaries: Mapping[Key, Summary]) -> Literal["reached", "missed", "open"]:
        if self.rival_figure:
            return self._verdict_across(summaries)
        contender = self.rival or "cenote"
        found = summaries.get((self.measure, self.figure, contender))
        if found is None or (self.rival and found.ratio is None):
            return "open"
        return "reached" if self._holds(found) else "missed"

    def _verdict_across(self, summaries: Mapping[Key, Summary]) -> Literal["reached", "missed", "open"]:
        ours = summaries.get((self.measure, self.figure, "cenote"))
        theirs = summaries.get((self.measure, self.rival_figure, self.rival or ""))
        if ours is None or theirs is None:
            return "open"
        return "reached" if theirs.median >= self.times_better * ours.median else "missed"

    def _holds(self, found: Summary) -> bool:
        if self.rival is not None:
            return (found.ratio or 0.0) >= self.times_better
        low = self.at_least is None or found.median >= self.at_least
        return low and (self.at_most is None or found.median <= self.at_most)


GOALS = (
    Goal(
        text="a warm start with pandas takes at most 60 ms",
        measure="start-pandas",
        figure="warm",
        at_most=60 * MS,
    ),
    Goal(
        text="and 20 times less than ipykernel's",
        measure="start-pandas",
        figure="warm",
        rival="ipykernel",
        times_better=20,
    ),
    Goal(text="round trip of `x = 1` at most 250 µs", measure="assign", figure="p50", at_most=0.25 * MS),
    Goal(
        text="and 1/15 of ipykernel's",
        measure="assign",
        figure="p50",
        rival="ipykernel",
        times_better=15,
    ),
    Goal(
        text="a sign of life in at most 10 ms while a cell holds the interpreter lock",
        measure="busy",
        figure="busy worst",
        at_most=10 * MS,
    ),
    Goal(text="with a full namespace too", measure="busy-full", figure="busy worst", at_most=10 * MS),
    Goal(text="at most 5 MB for an additional idle runtime", measure="idle", figure="PSS", at_most=5 * MB),
    Goal(
        text="500 MB handed to a further runtime in at most 1 ms",
        measure="hand-over",
        figure="hand-over",
        at_most=1 * MS,
    ),
    Goal(text="200 runtimes alive at once", measure="crowd", figure="alive", at_least=200),
)
