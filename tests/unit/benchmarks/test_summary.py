"""Medians, ratios and goals."""

from __future__ import annotations

import pytest
from benchmarks.runtime.goals import Goal
from benchmarks.runtime.sample import Sample
from benchmarks.runtime.summary import summarise


def sample(number: int, contender: str, value: float) -> Sample:
    return Sample(round=number, measure="m", contender=contender, outcome="measured", figures={"p50": value})


def test_a_ratio_is_taken_within_each_round() -> None:
    """A round that was slow for all does not change the ratio: 3x in each of three rounds is 3x."""
    samples = [
        sample(n, who, speed * drift)
        for n, drift in enumerate((1, 9, 2))
        for who, speed in (("a", 1), ("b", 3))
    ]
    summary = summarise(samples, "a")["m", "p50", "b"]
    assert (3.0, 6.0, 3.0, 27.0, 3) == (
        summary.ratio,
        summary.median,
        summary.low,
        summary.high,
        summary.rounds,
    )


def test_without_a_reference_there_is_no_ratio() -> None:
    """A contender measured alone keeps its median."""
    summary = summarise([sample(0, "b", 2.0)], "a")["m", "p50", "b"]
    assert (None, 2.0) == (summary.ratio, summary.median)


@pytest.mark.parametrize(
    ("verdict", "goal"),
    [
        ("reached", Goal(text="", measure="m", figure="p50", at_most=2.0)),
        ("missed", Goal(text="", measure="m", figure="p50", at_most=1.9)),
        ("reached", Goal(text="", measure="m", figure="p50", at_least=2.0)),
        ("missed", Goal(text="", measure="m", figure="p50", at_least=2.1)),
        ("reached", Goal(text="", measure="m", figure="p50", rival="b", times_better=5)),
        ("missed", Goal(text="", measure="m", figure="p50", rival="b", times_better=6)),
        ("open", Goal(text="", measure="m", figure="p50", rival="c", times_better=6)),
        ("open", Goal(text="", measure="n", figure="p50", at_most=1.0)),
    ],
)
def test_a_goal_is_reached_missed_or_open(verdict: str, goal: Goal) -> None:
    """Bounds are inclusive; a goal that was not measured is open, not reached."""
    summaries = summarise([sample(0, "cenote", 2.0), sample(0, "b", 10.0)], "cenote")
    assert verdict == goal.verdict(summaries)
