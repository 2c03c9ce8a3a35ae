"""What questions need is there when the first of them is asked: worked out with each step, and changing no answer."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.counting import calls
from tests.harness.lines import Line

from cenote.harness import ExecutionState, Slice
from cenote.harness.past import Past
from cenote.harness.slices import SlicedLines, slice_of
from cenote_worker.history.events import Declared
from cenote_worker.history.history import History

FIRST: dict[str, Callable[[ExecutionState], object]] = {
    "slice": lambda state: state.slice("last"),
    "graph": lambda state: state.graph(),
    "artifacts": lambda state: state.artifacts,
}

NAMES = ("a", "b", "c", "f", "g")

STATEMENTS = ("{} = [{}, {}]", "{} = {}({})", "{}.append({}); {}", "def {}(x):\n    {}.append({})",
              "def {}():\n    global {}\n    {} = 1", "{} = 1; {} = 2; {} = 3", "{} = {}\nimport {}")  # fmt: skip


def of_two_statements(steps: int) -> Line:
    line = Line("raw")
    line.history.declared([Declared(name="last", kind="dataset")])
    line.run("last = raw\nother = [raw]", reads=["raw"], writes=["last", "other"])
    for number in range(steps):
        names = [f"v{number % 5}", "last"]
        line.run(f"{names[0]} = call(last)\nlast = {names[0]}", reads=["call", *names], writes=names)
    return line


def read_again(history: History) -> History:
    copy = History()
    copy.read(history.event(position) for position in range(history.size))
    return copy


def unprepared(history: History, symbol: str, end: int) -> Slice:
    """Of the same history, of which nothing is known."""
    return slice_of(Past(read_again(history)), symbol, end)


@pytest.mark.parametrize("question", FIRST)
def test_the_first_question_costs_what_others_do(question: str) -> None:
    """Of a history that was lived, and of one that was read."""
    ask, line = FIRST[question], of_two_statements(200)
    copy = read_again(line.history)
    lived, read = calls(ask, line.state), calls(ask, ExecutionState(lambda: copy))
    assert lived < 20 * 200
    assert read < 20 * 200


def test_another_line_costs_what_there_is_more_of_it() -> None:
    """Behind a rollback, and where an earlier state is asked about."""
    line = of_two_statements(200)
    before = calls(FIRST["slice"], line.state)
    line.rollback(190)
    line.run("v0 = call(last)\nlast = v0", reads=["call", "last"], writes=["v0", "last"])
    assert calls(FIRST["slice"], line.state) < 1.5 * before
    assert calls(lambda state: state.slice("last", 150), line.state) < 1.5 * before


def test_a_further_function_matters_to_cells_that_have_to_do_with_it() -> None:
    """What others of them were found to give is not worked out again."""
    line = of_two_statements(200)
    line.run("def call(x):\n    return elsewhere", reads=[], writes=["call"])
    line.run("def other(x):\n    return x + unheard", reads=[], writes=["other"])
    before = calls(FIRST["slice"], line.state)
    line.run("def third(x):\n    return x + unseen", reads=[], writes=["third"])
    assert calls(FIRST["slice"], line.state) < 1.2 * before


def test_a_step_waits_for_no_question() -> None:
    """Of which it is known nothing more; the next question makes up for it."""
    line = of_two_statements(5)
    with line.history.beside(SlicedLines).lock:
        step = Thread(target=line.run, args=["last = call(last)\nv = 1"], kwargs={"writes": ["last"]})
        step.start()
        step.join(10)
        assert not step.is_alive()
    assert unprepared(line.history, "last", 7) == line.state.slice("last")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_worked_out_ahead_changes_no_answer(data: st.DataObject) -> None:
    """Whatever functions come to speak of, whatever comes to share objects, on whichever line."""
    line = Line(*NAMES)
    some = st.lists(st.sampled_from(NAMES), max_size=4)
    for number in range(1, data.draw(st.integers(2, 8), "steps")):
        statements = data.draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=3))
        code = "\n".join(each.format(*data.draw(st.permutations(NAMES))) for each in statements)
        reads, writes, group = (data.draw(some, what) for what in ("reads", "writes", "share"))
        line.run(code, reads=reads, writes=writes, groups=[group])
        if data.draw(st.integers(0, 4)) == 0:
            line.rollback(data.draw(st.integers(0, number), "back to"))
        end = data.draw(st.integers(1, number), "end")
        for symbol in data.draw(some, "asked"):
            assert unprepared(line.history, symbol, end) == line.state.slice(symbol, end)
