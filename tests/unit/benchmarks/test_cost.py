"""The cost of isolation, and whether it is within the goals."""

from __future__ import annotations

import pytest
from benchmarks.jail.cost import cost
from benchmarks.jail.goals import Goal
from benchmarks.runtime.sample import Sample

DRIFT = (1.0, 9.0, 2.0)


def sample(number: int, contender: str, **figures: float) -> Sample:
    return Sample(round=number, measure="m", contender=contender, outcome="measured", figures=figures)


def drifting(contender: str, seconds: float, rounds: range = range(3)) -> list[Sample]:
    return [sample(number, contender, wall=seconds * DRIFT[number]) for number in rounds]


def test_a_ratio_and_a_difference_are_taken_within_rounds() -> None:
    """A round that was slow for both changes neither the ratio nor the median difference."""
    found = cost([*drifting("walled", 1.5), *drifting("bare", 1.0)], "m", "wall", "walled", "bare")
    assert found is not None
    assert (3.0, 1.5, 1.0, 1.5) == (found.median, found.least, found.added, found.ratio)


def test_rounds_that_only_one_took_part_in_are_not_compared() -> None:
    """A slow rival skips most rounds; its ratio is relative to the rounds that it shared."""
    found = cost([*drifting("walled", 3.0, range(1)), *drifting("bare", 1.0)], "m", "wall", "walled", "bare")
    assert found is not None
    assert 3.0 == found.ratio


def test_alone_there_is_nothing_to_compare_with() -> None:
    """The time is kept; a sandbox that did not run has no cost."""
    alone = cost(drifting("walled", 1.0), "m", "wall", "walled", "bare")
    assert alone is not None
    assert (2.0, None, None) == (alone.median, alone.added, alone.ratio)
    assert cost(drifting("walled", 1.0), "m", "wall", "bare", "walled") is None


def goal(figure: str = "wall", **bound: float) -> Goal:
    return Goal(text="", measure="m", contender="walled", other="bare", figure=figure, **bound)


@pytest.mark.parametrize(
    ("verdict", "goal"),
    [
        ("reached", goal(added=0.5)),
        ("missed", goal(added=0.4)),
        ("reached", goal(ratio=1.5)),
        ("missed", goal(ratio=1.4)),
        ("missed", goal("CPU", ratio=1.9)),
        ("open", goal("disk", ratio=2.0)),
    ],
)
def test_a_goal_is_reached_missed_or_open(verdict: str, goal: Goal) -> None:
    """Bounds are inclusive; a goal that was not measured is open, not reached."""
    samples = [sample(0, "walled", wall=1.5, CPU=2.0), sample(0, "bare", wall=1.0, CPU=1.0)]
    assert verdict == goal.verdict(samples)
