"""Cached results for further slices: they save work, and change no answer."""

from __future__ import annotations

from types import MappingProxyType

from tests.support.harness.counting import calls
from tests.support.harness.lines import Line

from cenote.harness import ExecutionState
from cenote.harness.record.history_index import HistoryIndex
from cenote.harness.slicing.slices import slice_of
from cenote.harness.slicing.statement_choice import MAX_COMPANY, MAX_GROUPS, LineNames
from cenote.harness.slicing.statements import ReadCells
from cenote_worker.execution.trace import StepTrace, Version, name
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord

ENDS = (4, 9, 6, 9, 4, 5, 9)
"""The order in which states are queried: lines that continue others, and that end before them."""


def copied(history: History) -> History:
    """A copy with nothing computed."""
    copy = History()
    copy.read(history.event(position) for position in range(history.size))
    return copy


def anew(history: History) -> ExecutionState:
    """The same history, without earlier queries."""
    copy = copied(history)
    return ExecutionState(lambda: copy)


def two_lines() -> Line:
    """Names used by functions of later steps affect the slices of earlier ones; 9 follows 4."""
    line = Line("raw")
    line.run("a = raw\nb = [raw]", reads=["raw"], writes=["a", "b"])
    line.run("c = [a]\nd = call(c)", reads=["a", "call"], writes=["c", "d"])
    line.run("e = call(a)\nb = [e]", reads=["a", "call"], writes=["e", "b"])
    line.run("a = call(b)\nc = [1]", reads=["b", "call"], writes=["a", "c"])
    line.run("def call(x):\n    c.append(x)\nd = 1", writes=["call", "d"])
    line.run("a = call(e)\nb = [d]", reads=["call", "e", "d", "c"], writes=["a", "b", "c"])
    line.rollback(4)
    line.run("def bump():\n    global e\n    e = 1\nd = 2", writes=["bump", "d"])
    shared = frozenset(map(name, ("b", "c")))
    wrote = MappingProxyType({each: Version("v8") for each in shared})
    trace = StepTrace(reads=MappingProxyType({name("c"): Version("")}), writes=wrote, groups=(shared,))
    line.history.ended(StepRecord(number=8, code="b = c\nb.append(1)", trace=trace))
    line.run("e = call(b)\nd = [e]", reads=["b", "call"], writes=["e", "d"])
    return line


def test_further_slices_are_what_they_are_without_others_before_them() -> None:
    line = two_lines()
    for end in ENDS:
        for symbol in "abcde":
            expected = anew(line.history).slice(symbol, end)
            assert expected == line.state.slice(symbol, end), f"{symbol} after step {end}"


def test_slices_know_of_steps_that_came_after_the_last_one() -> None:
    """While the line grows, with a query after each step."""
    whole = two_lines().history
    history = History()
    state = ExecutionState(lambda: history)
    for position in range(whole.size):
        history.read([whole.event(position)])
        for symbol in "ab" if history.tree.head else "":
            assert anew(history).slice(symbol) == state.slice(symbol)


def test_further_slices_read_no_cell_again() -> None:
    """Nor after a further step: the parts taken from earlier steps are known."""
    line = Line("raw")
    line.run("last = raw\nother = 1", reads=["raw"], writes=["last", "other"])
    for number in range(100):
        names = [f"v{number % 5}", "last"]
        line.run(f"{names[0]} = last + 1\nlast = {names[0]}", reads=names, writes=names)
    unread = HistoryIndex(copied(line.history))
    first = calls(lambda _: slice_of(unread, "last", 101), line.state)
    line.run("v0 = last + 1\nlast = v0", reads=["v0", "last"], writes=["v0", "last"])
    assert calls(lambda state: state.slice("last"), line.state) < first / 8


def test_the_cost_of_a_slice_grows_with_what_shares_objects() -> None:
    """Each cell is given the sharing groups that it uses, not all of them."""
    once, twice = (calls(lambda state: state.slice("last"), sharing(length)) for length in (100, 200))
    assert twice < 2.2 * once + 20


def sharing(steps: int) -> ExecutionState:
    """Steps each of which leaves two names that share objects with each other only."""
    line = Line("raw")
    line.run("last = raw", reads=["raw"], writes=["last"])
    for number in range(2, steps + 2):
        pair = frozenset((name(f"x{number}"), name(f"y{number}")))
        wrote = {each: Version(f"v{number}") for each in (*pair, name("last"))}
        trace = StepTrace(
            reads=MappingProxyType({name("last"): Version("")}),
            writes=MappingProxyType(wrote),
            groups=(pair,),
        )
        code = f"x{number} = y{number} = [last]\nlast = call(last)"
        line.history.ended(StepRecord(number=number, code=code, trace=trace))
    return line.state


def crowding(number: int, first: int, last: int) -> StepRecord:
    """A step in which `hub` shares objects with each of these names, and none of them with another."""
    groups = tuple(frozenset((name("hub"), name(f"n{each}"))) for each in range(first, last))
    return StepRecord(number=number, code="hub = 1", trace=StepTrace(groups=groups))


def test_one_name_that_shares_objects_with_thousands() -> None:
    """Above one number they count as one group, and above another no cell of that line is split."""
    names = LineNames(ReadCells())
    names.grow([crowding(1, 0, MAX_GROUPS)])
    assert (False, True) == (names.crowded, names.readable)
    names.grow([crowding(2, MAX_GROUPS, MAX_GROUPS + 1)])
    assert (True, True) == (names.crowded, names.readable)
    names.grow([crowding(3, MAX_GROUPS + 1, MAX_COMPANY - 1)])
    assert names.readable
    assert names.grow([crowding(4, MAX_COMPANY, MAX_COMPANY + 2 * MAX_GROUPS)]).everything
    assert not names.readable
    before, news = names.until(3)
    assert (True, True) == (before.readable, news.everything)
