"""The region of buffers: laid out without copies, each byte handed out only once."""

from __future__ import annotations

import pytest

from cenote_security.errors import MalformedValueError, UnsafeValueError
from cenote_security.sealed_memory import ALIGNMENT
from cenote_security.values.region import RegionReader, RegionWriter


def test_numbers_are_aligned_and_text_is_packed() -> None:
    """Padding is used only where a library needs it."""
    writer = RegionWriter(1000)
    places = [
        writer.add(b"abc", "x", align=False),
        writer.add(b"de", "x", align=False),
        writer.add(b"f", "x", align=True),
    ]
    assert [[0, 3], [3, 2], [ALIGNMENT, 1]] == places
    assert writer.size == len(b"".join(writer.pieces)) == ALIGNMENT + 1


def test_the_writer_has_a_limit() -> None:
    """At the limit it accepts a buffer, one byte more it does not."""
    writer = RegionWriter(3)
    writer.add(b"abc", "x", align=False)
    with pytest.raises(UnsafeValueError, match="more than 3 bytes"):
        writer.add(b"d", "bytes", align=False)


def test_neighbours_may_touch() -> None:
    """Parts that end where others begin do not overlap; empty parts may be anywhere."""
    reader = RegionReader(b"abcdef")
    assert [b"ab", b"cdef", b""] == [bytes(reader.take(place)) for place in ([0, 2], [2, 4], [1, 0])]
    reader.finish()


def test_overlap_is_found_whatever_the_order() -> None:
    """One byte in two parts is one too many."""
    reader = RegionReader(b"abcdef")
    reader.take([3, 2])
    reader.take([1, 3])
    with pytest.raises(MalformedValueError, match="overlap"):
        reader.finish()


@pytest.mark.parametrize(
    "place", [None, [], [0], [0, 7], [6, 1], [-1, 1], [0, -1], [0.0, 1], [True, 1], ["0", 1]]
)
def test_places_outside_the_region_are_refused(place: object) -> None:
    """Including invalid places."""
    with pytest.raises(MalformedValueError):
        RegionReader(b"abcdef").take(place)  # type: ignore[arg-type]


def test_immutable_bytes_become_writable() -> None:
    """The sender's choice of container does not decide what a reader may do with its arrays."""
    assert not RegionReader(b"abc").take([0, 3]).readonly
