"""What questions cost, counted in calls of functions: with twice the steps it is twice as much, not four times."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from tests.harness.lines import Line

from cenote.harness import ExecutionState

QUESTIONS: dict[str, Callable[[ExecutionState], object]] = {
    "steps": lambda state: state.steps,
    "at": lambda state: state.at(state.head),
    "blame": lambda state: state.blame("raw"),
    "dependents of a symbol": lambda state: state.dependents("raw"),
    "dependents of a step": lambda state: state.dependents(1),
    "slice": lambda state: state.slice("last"),
    "diff": lambda state: state.diff(1, state.head),
    "steps by": lambda state: state.steps_by(author="ana", symbol="v3"),
    "graph": lambda state: state.graph(),
}


def chain(length: int, *, blind: bool) -> ExecutionState:
    """Each step takes what the one before wrote, so that everything depends on everything."""
    line = Line("raw")
    line.run(reads=["raw"], writes=["last"])
    for number in range(length):
        if blind and number % 10 == 0:
            line.blind("...")
        line.run(reads=["last", f"v{number % 7}"], writes=["last", f"v{number % 5}"], author="ana")
    return line.state


def calls(question: Callable[[ExecutionState], object], state: ExecutionState) -> int:
    """Python's and C's, made while it is answered."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        question(state)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("blind", [False, True], ids=["traced", "partly traced"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_cost_grows_with_the_steps(question: str, blind: bool) -> None:
    """And a step costs no more than some dozens of calls."""
    ask = QUESTIONS[question]
    once, twice = (calls(ask, chain(length, blind=blind)) for length in (300, 600))
    assert twice < 2.2 * once + 20
    assert twice < 60 * 660
