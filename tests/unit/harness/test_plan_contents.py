"""The known contents of a state: the version of the working directory follows from its files."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.harness.planning.state_contents import Contents, found_at_first
from cenote_worker.execution.trace import ABSENT, TREE, Location, StepTrace, Version, file, name
from cenote_worker.history.step import StepRecord

P, Q = file("p"), file("q")


def after(*steps: Sequence[tuple[Location, str]]) -> Contents:
    """The contents after steps that have written these versions."""
    contents = Contents()
    for number, writes in enumerate(steps, 1):
        contents.fold(number, StepTrace(writes={place: Version(version) for place, version in writes}))
    return contents


def test_what_a_step_says_of_the_whole_holds_for_its_own_history() -> None:
    """It was true with the file that another step had written."""
    was, now = after([(Q, "q"), (TREE, "1")], [(P, "p"), (TREE, "2")]), after([(P, "p"), (TREE, "2")])
    assert was.version(P) == now.version(P)
    assert (False, {TREE, Q}) == (was.same(now, TREE), was.differing(now))


def test_equal_files_make_an_equal_whole() -> None:
    """In any order of writing, whatever version each step found."""
    one = after([(Q, "q"), (TREE, "1")], [(P, "p"), (TREE, "2")])
    other = after([(P, "p"), (TREE, "8")], [(Q, "q"), (TREE, "9")])
    assert (True, set()) == (one.same(other, TREE), one.differing(other))


def test_files_that_nobody_listed_are_told_apart_by_the_step() -> None:
    """Also after a step that lists its writes."""
    one, other = (after([(TREE, each)], [(P, "p"), (TREE, "2")]) for each in ("a", "b"))
    assert (False, {TREE}) == (one.same(other, TREE), one.differing(other))


def test_what_was_seen_of_the_whole_holds_until_a_file_is_written() -> None:
    """Not when a file turns out to be unchanged."""
    contents = after([(P, "p"), (TREE, "1")])
    contents.correct(TREE, Version("seen"))
    contents.correct(Q, Version("q"))
    assert "seen" == contents.version(TREE)
    contents.fold(2, StepTrace(writes={P: Version("p2"), TREE: Version("2")}))
    assert "?files" == contents.version(TREE)


def test_what_is_taken_over_makes_the_whole_right() -> None:
    """Once no file differs."""
    live, wanted = after([(P, "p"), (Q, "old"), (TREE, "1")]), after([(P, "p"), (Q, "new"), (TREE, "1")])
    assert {Q, TREE} == live.take(wanted, [Q])
    assert set() == live.differing(wanted)


def test_what_the_first_steps_found_is_what_there_was() -> None:
    """Of names that no step had written before, with known versions; until a step may have written everything."""
    a, b, c, d, e = map(name, "abcde")
    one = StepTrace(
        reads={a: Version("1"), b: ABSENT, d: Version("?")}, writes={a: Version("2"), c: Version("3")}
    )
    two = StepTrace(
        reads={a: Version("2"), c: Version("3"), file("f"): Version("4")}, opaque=("a thread ran",)
    )
    three = StepTrace(reads={e: Version("5")})
    records = [StepRecord(number=at, trace=trace) for at, trace in enumerate((one, two, three), 1)]
    assert {a: "1", b: ""} == found_at_first(records)
