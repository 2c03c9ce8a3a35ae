"""The cost of queries, counted in function calls: it doubles with twice the steps, and does not quadruple."""

from __future__ import annotations

import gc

import pytest
from tests.support.harness.counting import calls
from tests.support.harness.lines import Line
from tests.support.harness.questions import QUESTIONS, chain

from cenote.harness import ExecutionState


@pytest.mark.sweep
@pytest.mark.parametrize("blind", [False, True], ids=["traced", "partly traced"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_cost_grows_with_the_steps(question: str, blind: bool) -> None:
    """And a step costs at most some dozens of calls."""
    ask = QUESTIONS[question]
    once, twice = (calls(ask, chain(length, blind=blind)) for length in (300, 600))
    assert twice < 2.2 * once + 20
    assert twice < 60 * 660


def test_the_cost_of_a_slice_grows_with_the_code() -> None:
    """Steps with code: each is read once, whichever step wrote its names before."""
    once, twice = (calls(lambda state: state.slice("last"), written(length)) for length in (150, 300))
    assert twice < 2.2 * once + 20


def written(steps: int) -> ExecutionState:
    """A line of that many steps, each of two statements."""
    line = Line("raw")
    line.run("last = raw", reads=["raw"], writes=["last"])
    for number in range(steps):
        names = [f"v{number % 5}", "last"]
        line.run(f"{names[0]} = last + 1\nlast = {names[0]}", reads=names, writes=names)
    return line.state


def test_the_collector_is_left_as_it_was() -> None:
    """Enabled, with nothing frozen by the query; objects frozen by its user stay so."""
    state = chain(1_000, blind=False)
    gc.unfreeze()  # what pytest froze after it had collected the tests
    state.graph()
    assert (True, 0) == (gc.isenabled(), gc.get_freeze_count())
    gc.freeze()
    try:
        state.graph()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
