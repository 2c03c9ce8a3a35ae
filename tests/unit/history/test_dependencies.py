"""Which steps each step took its inputs from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.history.records import traced

from cenote_worker.execution.trace import StepTrace, name
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import StepTree

NAMES = ("a", "b", "c")
names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
steps = st.tuples(names, names, st.booleans(), st.integers(0, 30))
"""The names that a step reads and writes, whether it was traced, and the step to which the head moves first."""


@given(st.lists(steps, max_size=20))
def test_inputs_are_the_last_writers_on_the_line(program: list[tuple]) -> None:
    """They equal the result of a search from each step back to the start, however often the head moved in between."""
    history = History()
    for number, (reads, writes, known, jump) in enumerate(program, 1):
        history.moved(jump if jump < number else number - 1, "rollback")
        trace = traced(reads=reads, writes=writes) if known else None
        history.ended(StepRecord(number=number, trace=trace))
        behind = history.tree.line(number)[:-1][::-1]
        inputs = history.dependencies.inputs(number)
        for each in reads if known else ():
            writers = [old.number for old in behind if old.trace and name(each) in old.trace.writes]
            assert (writers or [None])[0] == inputs.seen.get(name(each))
        untraced = [old.number for old in behind if old.trace is None]
        looks = not known or bool(reads)
        assert ((untraced or [0])[0] if looks else 0) == inputs.shadow


@given(st.lists(steps, max_size=20))
def test_it_makes_no_difference_when_they_are_asked_for(program: list[tuple]) -> None:
    """Dependencies after a rollback are computed on demand, whatever has happened since."""
    asked, unasked, ahead = History(), History(), History()
    for number, (reads, writes, known, jump) in enumerate(program, 1):
        for history in (asked, unasked, ahead):
            history.moved(jump if jump < number else number - 1, "rollback")
            history.ended(
                StepRecord(number=number, trace=traced(reads=reads, writes=writes) if known else None)
            )
        asked.dependencies.inputs(number)
        ahead.prepare()
    numbers = range(1, len(program) + 1)
    expected = [asked.dependencies.inputs(each) for each in numbers]
    for history in (unasked, ahead):
        assert expected == [history.dependencies.inputs(each) for each in numbers]


def test_a_step_behind_a_rollback_costs_whoever_adds_it_no_walk_along_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A jail can report a million locations; steps are added on the thread that reads for all jails."""
    walks: list[int] = []
    line = StepTree.line
    monkeypatch.setattr(StepTree, "line", lambda tree, end: walks.append(end) or line(tree, end))
    history = History()
    for number in (1, 2, 3):
        history.ended(StepRecord(number=number, trace=traced(writes=["x"])))
    for number in (4, 5):
        history.moved(2, "rollback")
        history.ended(StepRecord(number=number, trace=traced(reads=["x"])))
    assert [] == walks
    assert {name("x"): 2} == dict(history.dependencies.inputs(5).seen)
    assert [2, 2] == walks


def test_private_names_are_their_authors_own() -> None:
    """Two authors' `x` are two locations; the common one is a third."""
    history = History()
    write, read = traced(writes=["x"]), traced(reads=["x"])
    history.ended(StepRecord(number=1, trace=write))
    history.ended(StepRecord(number=2, trace=write, author="ana", private=True))
    history.ended(StepRecord(number=3, trace=read, author="ben"))
    history.ended(StepRecord(number=4, trace=read, author="ana", private=True))
    history.ended(StepRecord(number=5, trace=read, author="ben", private=True))
    found = [dict(history.dependencies.inputs(number).seen) for number in (3, 4, 5)]
    assert [{name("x"): 1}, {name("ana/x"): 2}, {}] == found


def test_a_step_with_an_opaque_part_stands_between() -> None:
    """It has a trace, and may have done more than the trace lists."""
    history = History()
    history.ended(StepRecord(number=1, trace=traced(writes=["x"])))
    history.ended(StepRecord(number=2, trace=StepTrace(opaque=("it called exec",))))
    history.ended(StepRecord(number=3, trace=traced(reads=["x"])))
    inputs = history.dependencies.inputs(3)
    assert ({name("x"): 1}, 2) == (dict(inputs.seen), inputs.shadow)
