"""The output of a cell, for clients that join late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.execution.results import StreamName
from cenote_worker.execution.transcript import CellTranscript

STREAMS = st.sampled_from(("stdout", "stderr"))
WRITES = st.lists(st.tuples(STREAMS, st.text(max_size=40_000)), max_size=8)


def test_pieces_keep_their_stream_and_their_order() -> None:
    """Writes to one stream are joined; a change of stream begins a new piece."""
    transcript = CellTranscript(100)
    writes: list[tuple[StreamName, str]] = [
        ("stdout", "a"),
        ("stdout", "b"),
        ("stderr", "c"),
        ("stdout", "d"),
    ]
    for stream, text in writes:
        transcript.add(stream, text)
    assert (0, [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]) == transcript.after(0)
    assert (0, [("stdout", "b"), ("stderr", "c"), ("stdout", "d")]) == transcript.after(1)
    assert (0, []) == transcript.after(4)


def test_what_is_over_the_limit_is_counted_as_missing() -> None:
    """At least the last `limit` characters remain; the number of dropped ones is reported."""
    transcript = CellTranscript(10)
    transcript.add("stdout", "x" * 20_000)
    transcript.add("stdout", "y" * 10)
    assert (20_000 - 5, [("stdout", "y" * 10)]) == transcript.after(5)


def test_what_is_known_to_be_lost_keeps_its_place() -> None:
    """Positions after a gap are those of the program's output, not of the remaining text."""
    transcript = CellTranscript(100)
    transcript.skip(7)
    transcript.add("stdout", "rest")
    assert (7, [("stdout", "rest")]) == transcript.after(0)
    assert (0, [("stdout", "st")]) == transcript.after(9)


@given(writes=WRITES, limit=st.integers(1, 50_000), position=st.integers(0, 100_000))
def test_nothing_is_lost_or_repeated(writes: list[tuple[StreamName, str]], limit: int, position: int) -> None:
    """The dropped part and the given part add up, and the given part is the end of the output."""
    transcript = CellTranscript(limit)
    for stream, text in writes:
        transcript.add(stream, text)
    whole = "".join(text for _, text in writes)
    position = min(position, len(whole))
    missing, pieces = transcript.after(position)
    assert whole[position + missing :] == "".join(text for _, text in pieces)
    assert min(limit, len(whole)) <= transcript.size
