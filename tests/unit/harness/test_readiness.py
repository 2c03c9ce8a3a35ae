"""Data for queries is computed with each step, before the first query, and changes no answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.harness.counting import calls
from tests.support.harness.lines import Line
from tests.waiting import PATIENCE

from cenote.harness import ExecutionState, Slice
from cenote.harness.record.history_index import HistoryIndex
from cenote.harness.slicing.slices import SlicedLines, slice_of
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.history.history import History

FIRST: dict[str, Callable[[ExecutionState], object]] = {
    "slice": lambda state: state.slice("last"),
    "graph": lambda state: state.graph(),
    "artifacts": lambda state: state.artifacts,
}

NAMES = ("a", "b", "c", "f", "g", "rows")

STATEMENTS = (
    "{} = [{}, {}]",
    "{} = {}({})",
    "{}.append({})",
    "{} = len({})",
    "{} = {} + 1",
    "def {}(x):\n    {}.append({})",
    "def {}():\n    global {}\n    {} = 1",
)

KINDS = ("int", "list", "function", "module", "Thing")


def of_two_statements(steps: int) -> Line:
    line = Line("raw")
    line.history.declared([ArtifactDeclared(name="last", kind="dataset")])
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
    """A slice of the same history, with nothing computed ahead."""
    return slice_of(HistoryIndex(read_again(history)), symbol, end)


@pytest.mark.parametrize("question", FIRST)
def test_the_first_question_costs_what_others_do(question: str) -> None:
    """Of a live history. For a history that was read, a slice computes what it needs of each step."""
    ask, line = FIRST[question], of_two_statements(200)
    copy = read_again(line.history)
    lived, read = calls(ask, line.state), calls(ask, ExecutionState(lambda: copy))
    assert lived < 20 * 200
    assert read < (400 if question == "slice" else 20) * 200


def test_another_line_costs_what_there_is_more_of_it() -> None:
    """After a rollback, and for an earlier state."""
    line = of_two_statements(200)
    before = calls(FIRST["slice"], line.state)
    line.rollback(190)
    line.run("v0 = call(last)\nlast = v0", reads=["call", "last"], writes=["v0", "last"])
    assert calls(FIRST["slice"], line.state) < 1.5 * before
    assert calls(lambda state: state.slice("last", 150), line.state) < 1.5 * before


def test_a_further_function_matters_to_cells_that_have_to_do_with_it() -> None:
    """Results for other cells are not computed again."""
    line = of_two_statements(200)
    line.run("def call(x):\n    return elsewhere", reads=[], writes=["call"])
    line.run("def other(x):\n    return x + unheard", reads=[], writes=["other"])
    before = calls(FIRST["slice"], line.state)
    line.run("def third(x):\n    return x + unseen", reads=[], writes=["third"])
    assert calls(FIRST["slice"], line.state) < 1.2 * before


def test_a_step_waits_for_no_question() -> None:
    """The step skips the computation; the next query makes up for it."""
    line = of_two_statements(5)
    with line.history.beside(SlicedLines).lock:
        step = Thread(target=line.run, args=["last = call(last)\nv = 1"], kwargs={"writes": ["last"]})
        step.start()
        step.join(PATIENCE)
        assert not step.is_alive()
    assert unprepared(line.history, "last", 7) == line.state.slice("last")


def two_calls() -> Line:
    """A cell of two statements that are independent, as far as is known there."""
    line = Line("call", "make", "n", "m")
    line.run("a = call(n)\nb = make(m)", reads=["call", "make", "n", "m"], writes=["a", "b"])
    return line


def test_what_functions_come_to_speak_of_is_heard_of() -> None:
    """Either call may have run them: one may have changed what the other used. Not on a line without them."""
    line = two_calls()
    assert ["b = make(m)"] == [each.text for each in line.state.slice("b").statements]
    line.run("def later():\n    return unheard", writes=["later"])
    assert ["a = call(n)\nb = make(m)"] == [each.text for each in line.state.slice("b").statements]
    line.rollback(1)
    line.run("c = 1", writes=["c"])
    assert ["b = make(m)"] == [each.text for each in line.state.slice("b").statements]


def test_what_comes_to_share_objects_is_heard_of() -> None:
    """A call may have used an object that the other changed."""
    line = two_calls()
    assert ["b = make(m)"] == [each.text for each in line.state.slice("b").statements]
    line.run("n = [m]", reads=["m"], writes=["n"], groups=[["n", "m"]])
    assert ["a = call(n)\nb = make(m)"] == [each.text for each in line.state.slice("b").statements]


def test_what_a_cell_has_put_back_counts_for_who_wants_that_too() -> None:
    """Two slices take different statements of the same cell."""
    line = Line()
    line.run("rows = [1]", writes=["rows"], kinds={"rows": "list"})
    line.run("rows.append(1)\nk = len(rows)\nrows.pop()", reads=["rows"], writes=["k"], kinds={"k": "int"})
    line.run("both = [k, rows]", reads=["k", "rows"], writes=["both"])
    assert "rows.append(1)\nk = len(rows)" in line.state.slice("k").source
    assert "rows.pop()" not in line.state.slice("k").source
    assert "rows.pop()" in line.state.slice("both").source


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_what_is_worked_out_ahead_changes_no_answer(random: Random) -> None:
    """Whichever functions use names, whichever names share objects, on whichever line."""
    line = Line(*NAMES)
    for number in range(1, 25):
        run_something(line, random)
        if random.random() < 0.1:
            line.rollback(random.randint(0, number))
        if number % 4 == 0:
            end = random.randint(1, number)
            for symbol in NAMES:
                expected = unprepared(line.history, symbol, end)
                assert expected == line.state.slice(symbol, end), f"{symbol} after {end}"


def run_something(line: Line, random: Random) -> None:
    """A cell of a few statements that reads and writes some of the names in its code, and a few others."""
    statements = random.choices(STATEMENTS, k=random.randint(1, 4))
    code = "\n".join(each.format(*random.sample(NAMES, 3)) for each in statements)
    spoken = [each for each in NAMES if re.search(rf"\b{each}\b", code)]
    reads, writes = ([each for each in spoken if random.random() < 0.7] for _ in range(2))
    line.run(
        code,
        reads=[*reads, *random.sample(NAMES, 1)],
        writes=writes,
        groups=[[each, random.choice(NAMES)] for each in writes if random.random() < 0.2],
        kinds={each: random.choice(KINDS) for each in writes},
    )
