"""Two indexes of a state, compared: values in, lines out."""

from __future__ import annotations

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.execution.state_index import (
    MAX_REASON,
    MOST_NAMED,
    OTHER_CONTENT,
    OTHER_SHARING,
    Indexed,
    differences,
    fill,
    from_message,
)
from cenote_worker.execution.trace import Location, Version, file, hidden, module, name


def of(location: Location, version: str = "1", **other: str) -> Indexed:
    return Indexed(location=location, version=Version(version), **other)  # type: ignore[arg-type]


def compared(expected: list[Indexed], *found: Indexed) -> tuple[str, ...]:
    return differences(expected, {each.location: each for each in found})


def test_what_is_equal_is_not_spoken_of() -> None:
    there = [of(name("a")), of(name("b"), "2+shared"), of(hidden("locale")), of(file("/tmp/x"))]
    assert () == compared(there, *there)


def test_each_kind_of_difference_has_its_line() -> None:
    """Content, sharing, absence, order; earlier findings add details."""
    expected = [
        of(name("a")),
        of(name("b"), "2+shared"),
        of(name("c")),
        of(hidden("locale"), foretold="not carried"),
    ]
    found = (of(name("b"), "2"), of(name("a"), "9"), of(hidden("locale"), "9"))
    assert (
        f"a: {OTHER_CONTENT}",
        f"b: {OTHER_SHARING}",
        "c: it is not there",
        "the state of locale: not carried",
        "the names are in another order",
    ) == compared(expected, *found)


def test_what_was_tried_with_a_name_holds_and_other_guesses_are_refuted() -> None:
    """The pickles of a name are identical. State set in a library may have been copied after all."""
    expected = [
        of(name("a"), foretold="a.cache is not in a copy"),
        of(name("b"), "2+s", foretold=OTHER_SHARING),
        Indexed(location=module("json"), version=Version("3"), attributes=("X",), foretold="not carried"),
    ]
    assert ("a: a.cache is not in a copy",) == compared(expected, *expected)


def test_what_cannot_be_seen_is_not_compared() -> None:
    """On either side, in one line; state set inside a library that cannot be read is still forecast."""
    unseen = [of(name(f"n{each:02}"), "?1", unseen="opaque") for each in range(MOST_NAMED + 2)]
    copies = [of(each.location, "?2") for each in unseen]
    (line,) = compared(unseen, *copies)
    assert line.startswith("not compared with the original: n00, n01")
    assert line.endswith(" and 2 more")
    assert ("not compared with the original: a",) == compared(
        [of(name("a"))], of(name("a"), "2", unseen="opaque")
    )
    inside = Indexed(location=module("csv"), version=Version("1"), unseen="inside", foretold="not carried")
    assert ("module csv: not carried",) == compared([inside], of(module("csv")))


def test_an_entry_goes_through_a_message_and_is_cut() -> None:
    entry = Indexed(
        location=module("json"),
        version=Version("1+2"),
        attributes=("X",),
        unseen="u",
        untried="t",
        foretold="f" * 999,
    )
    message = checkpoint_pb2.Indexed()
    fill(message, entry)
    read = from_message(message)
    assert ("1", "2", ("X",), "u", "t", "f" * MAX_REASON, "json.X") == (
        read.content,
        read.sharing,
        read.attributes,
        read.unseen,
        read.untried,
        read.foretold,
        read.spoken,
    )
