"""What questions cost, counted in calls of functions: with twice the steps it is twice as much, not four times."""

from __future__ import annotations

import gc

import pytest
from tests.harness.counting import calls
from tests.harness.lines import Line
from tests.harness.questions import QUESTIONS, chain

from cenote.harness import ExecutionState


@pytest.mark.sweep
@pytest.mark.parametrize("blind", [False, True], ids=["traced", "partly traced"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_cost_grows_with_the_steps(question: str, blind: bool) -> None:
    """And a step costs no more than some dozens of calls."""
    ask = QUESTIONS[question]
    once, twice = (calls(ask, chain(length, blind=blind)) for length in (300, 600))
    assert twice < 2.2 * once + 20
    assert twice < 60 * 660


def test_the_cost_of_a_slice_grows_with_the_code() -> None:
    """Of steps that have some: each is read once, whoever wrote its names before."""
    once, twice = (calls(lambda state: state.slice("last"), written(length)) for length in (150, 300))
    assert twice < 2.2 * once + 20


def written(steps: int) -> ExecutionState:
    """A line of so many steps, each of two statements."""
    line = Line("raw")
    line.run("last = raw", reads=["raw"], writes=["last"])
    for number in range(steps):
        names = [f"v{number % 5}", "last"]
        line.run(f"{names[0]} = last + 1\nlast = {names[0]}", reads=names, writes=names)
    return line.state


def test_the_collector_is_left_as_it_was() -> None:
    """On, with nothing set aside that was not; what its user has set aside stays so."""
    state = chain(1_000, blind=False)
    gc.unfreeze()  # what the run has set aside once it had collected its tests
    state.graph()
    assert (True, 0) == (gc.isenabled(), gc.get_freeze_count())
    gc.freeze()
    try:
        state.graph()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
