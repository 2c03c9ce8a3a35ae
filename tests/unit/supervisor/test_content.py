"""Content: parts survive the trip, and inconsistent content is not read."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.descriptors import MEMORY, all_closed

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.transport.content import INLINE_LIMIT, MAX_PARTS, Content

PARTS = st.lists(
    st.binary(max_size=300) | st.tuples(st.binary(max_size=100), st.binary(max_size=100)), max_size=8
)


def flat(part: bytes | tuple[bytes, ...]) -> bytes:
    return b"".join(part) if isinstance(part, tuple) else part


def over_the_wire(content: Content, limit: int = 1 << 30) -> Content:
    message, descriptors = jail_pb2.Payload(), list[int]()
    content.to_wire(message, descriptors)
    received = [os.dup(descriptor) for descriptor in descriptors]
    return Content.from_wire(jail_pb2.Payload.FromString(message.SerializeToString()), received, limit)


@given(PARTS)
@settings(max_examples=100)
def test_parts_survive(parts: list[bytes | tuple[bytes, ...]]) -> None:
    """Packed parts are unpacked in the same order; pieces of one part are joined."""
    content = over_the_wire(Content.pack(parts))
    assert [flat(part) for part in parts] == [bytes(part) for part in content.unpack()]


def test_large_content_travels_as_sealed_memory() -> None:
    """Content over the inline limit is a descriptor; its pages are writable and private to each reader."""
    big = bytes(range(256)) * (INLINE_LIMIT // 128)
    with_memory = Content.pack([b"header", big])
    assert with_memory.memory is not None
    first, second = over_the_wire(with_memory), over_the_wire(with_memory)
    view = first.unpack()[1]
    view[0] = 99
    assert big == bytes(second.unpack()[1])
    for content in (with_memory, first, second):
        content.close()


def test_parts_are_aligned() -> None:
    """Arrays can be used in place: each part starts on a multiple of 64 bytes."""
    content = Content.pack([b"x", b"y" * 65, b"z"])
    whole = content.inline or b""
    assert [64, 128, 256] == [whole.index(mark) for mark in (b"x", b"y", b"z")]


def test_the_limit_is_checked_before_the_descriptor() -> None:
    """One byte over the limit is refused, the limit itself is not."""
    content = Content.pack([bytes(100)])
    assert 100 == len(over_the_wire(content, limit=content.size).unpack()[0])
    with pytest.raises(ProtocolViolation, match="over the limit"):
        over_the_wire(content, limit=content.size - 1)


@pytest.mark.parametrize(
    "message",
    [
        jail_pb2.Payload(inline=b"abc", size=4, count=0),
        jail_pb2.Payload(attached=True, size=4, count=0),
        jail_pb2.Payload(inline=b"", size=0, count=MAX_PARTS + 1),
    ],
)
def test_lies_are_refused(message: jail_pb2.Payload) -> None:
    """A wrong size, a missing descriptor, an endless table."""
    with pytest.raises(ProtocolViolation):
        Content.from_wire(message, [], 1000)


@given(st.binary(max_size=200), st.integers(0, 30))
def test_any_bytes_unpack_or_are_refused(data: bytes, count: int) -> None:
    """A table that points outside its content never causes a read there."""
    content = Content(size=len(data), count=count, inline=data)
    try:
        parts = content.unpack()
    except ProtocolViolation:
        return
    assert sum(len(part) for part in parts) <= len(data)


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_the_only_part_is_what_is_unpacked(part: bytes, data: bytes) -> None:
    """It equals the unpacked part, or both are refused."""
    packed = Content.pack([part])
    assert part == packed.only_part() == bytes(packed.unpack()[0])
    for inline in (data, struct.pack("<Q", len(part)) + data, (packed.inline or b"") + data):
        content = Content(size=len(inline), count=1, inline=inline)
        try:
            expected = bytes(content.unpack()[0])
        except ProtocolViolation:
            with pytest.raises(ProtocolViolation):
                content.only_part()
        else:
            assert expected == content.only_part()


def test_the_only_part_in_memory() -> None:
    """A part too large for a packet is read from memory."""
    with_memory = Content.pack([b"a" * 100_000])
    assert b"a" * 100_000 == with_memory.only_part()
    with_memory.close()


def test_a_part_beyond_the_end() -> None:
    """The length of a part is checked against the content."""
    data = struct.pack("<Q", 1 << 62)
    with pytest.raises(ProtocolViolation, match="beyond"):
        Content(size=len(data), count=1, inline=data).unpack()


def test_memory_that_is_not_sealed_is_refused() -> None:
    """A jail that could shrink its memory could kill the reader with SIGBUS."""
    descriptor = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 100)
    message = jail_pb2.Payload(attached=True, size=100, count=0)
    with pytest.raises(ProtocolViolation, match="sealed"):
        Content.from_wire(message, [descriptor], 1000)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("size", [10, 100_000])
def test_parts_that_come_bit_by_bit(size: int) -> None:
    """They are packed like parts that are complete."""
    parts = [b"a" * size, b"", b"b" * 3]
    bits = [[part[:5], part[5:]] for part in parts]
    packed, written = Content.pack(parts), Content.written([len(part) for part in parts], bits)
    assert [bytes(part) for part in packed.unpack()] == [bytes(part) for part in written.unpack()]
    assert (packed.size, packed.count, packed.inline) == (written.size, written.count, written.inline)
    packed.close()
    written.close()


def test_a_part_that_turns_out_to_be_damaged_leaves_nothing() -> None:
    """The reader of the parts gets the error; the memory is freed."""

    def broken() -> Iterator[bytes]:
        yield b"a" * 100_000
        raise KeyError("damaged")

    with all_closed(MEMORY), pytest.raises(KeyError, match="damaged"):
        Content.written([200_000], [broken()])


@pytest.mark.parametrize("size", [0, 1, 63, 64, INLINE_LIMIT - 64, INLINE_LIMIT - 63])
def test_one_part_is_packed_as_any_number_of_them(size: int) -> None:
    """The shortcut for a single part gives the usual result, also beyond the size of a packet."""
    part = os.urandom(size)
    short, usual = Content.pack([part]), Content.pack([(part,)])
    assert (usual.size, usual.count, usual.inline) == (short.size, short.count, short.inline)
    assert [part] == [bytes(each) for each in short.unpack()]
    short.close()
    usual.close()
