"""Content in chunks, and frames in parts: complete again after the wire, or refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.transport.content import INLINE_LIMIT, MAX_PARTS, Content
from cenote_worker.wire import chunking


def sealed(data: bytes) -> Content:
    return Content(size=len(data), count=0, memory=SealedMemory.create([data]))


@pytest.mark.parametrize("size", [0, 1, chunking.CHUNK, chunking.CHUNK + 1, 3 * chunking.CHUNK])
def test_content_in_chunks(size: int) -> None:
    """Any size, in at least one chunk, sealed when it is complete."""
    content = sealed(os.urandom(size))
    payload = jail_pb2.Payload()
    assert chunking.announce(payload, content)
    pieces = list(chunking.chunks(content))
    assert max(-(-size // chunking.CHUNK), 1) == len(pieces)
    incoming = chunking.Incoming(payload, limit=size)
    for piece in pieces:
        incoming.add(piece)
    whole = incoming.finish()
    assert content.whole() == whole.whole()
    assert whole.memory is not None
    with pytest.raises(PermissionError):
        os.pwrite(whole.memory.fileno(), b"x", 0)
    content.close()
    whole.close()
    incoming.close()


@pytest.mark.parametrize("size", [0, 1, INLINE_LIMIT])
def test_small_content_goes_with_its_frame(size: int) -> None:
    """It comes out unchanged."""
    content = Content.of_bytes(b"x" * size)
    payload = jail_pb2.Payload()
    assert not chunking.announce(payload, content)
    assert content == chunking.inline(payload, limit=size)


def test_long_inline_content_is_put_into_memory() -> None:
    """A client may inline more than a packet to a jail can hold."""
    payload = jail_pb2.Payload(inline=b"x" * (INLINE_LIMIT + 1), size=INLINE_LIMIT + 1)
    content = chunking.inline(payload, limit=1 << 20)
    assert content.memory is not None
    assert payload.inline == content.whole()
    content.close()


@pytest.mark.parametrize(
    "payload",
    [
        jail_pb2.Payload(size=11, inline=b"x" * 11),
        jail_pb2.Payload(size=10, inline=b"x" * 11),
        jail_pb2.Payload(size=2, inline=b"xx", count=MAX_PARTS + 1),
    ],
    ids=["too much", "a lie", "too many parts"],
)
def test_inline_content_that_is_refused(payload: jail_pb2.Payload) -> None:
    """Over the limit, of another size than it states, or in endless parts."""
    with pytest.raises(ProtocolViolation):
        chunking.inline(payload, limit=10)


def test_announced_content_that_is_refused() -> None:
    """Before its first byte arrives; one at the limit is awaited."""
    with pytest.raises(ProtocolViolation):
        chunking.Incoming(jail_pb2.Payload(size=11, attached=True), limit=10)
    chunking.Incoming(jail_pb2.Payload(size=10, attached=True), limit=10).close()


def test_chunks_that_do_not_add_up() -> None:
    """One byte more, or fewer, than announced."""
    incoming = chunking.Incoming(jail_pb2.Payload(size=3, attached=True), limit=10)
    incoming.add(b"ab")
    with pytest.raises(ProtocolViolation):
        incoming.finish()
    with pytest.raises(ProtocolViolation):
        incoming.add(b"cd")
    incoming.close()


@settings(deadline=None, max_examples=40)  # the machine may be busy with other tests
@given(st.integers(0, 2), st.integers(-30, 3), st.integers(1, 2**64 - 1))
def test_a_frame_in_parts(megabytes: int, more: int, call: int) -> None:
    """Frames around the limit are the same frame again; short ones are sent unchanged."""
    text = "x" * max(megabytes * chunking.LONGEST + more, 0)
    frame = runtime_pb2.ServerFrame(call=call, output=runtime_pb2.CellOutput(text=text))
    messages = list(chunking.cut(frame))
    assert all(message.call == call and message.ByteSize() < chunking.LONGEST + 100 for message in messages)
    if frame.ByteSize() <= chunking.LONGEST:
        assert [frame] == messages
        return
    joiner = chunking.Joiner(limit=6 << 20)
    joined = [joiner.add(message.part) for message in messages]
    assert frame == joined.pop()
    assert not any(joined)


def test_parts_over_the_limit() -> None:
    """One byte too many is refused."""
    joiner = chunking.Joiner(limit=3)
    joiner.add(runtime_pb2.Part(data=b"abc"))
    with pytest.raises(ProtocolViolation):
        joiner.add(runtime_pb2.Part(data=b"d"))


def test_parts_that_are_no_frame() -> None:
    """It is a violation, not an exception of a parser's."""
    with pytest.raises(ProtocolViolation):
        chunking.Joiner(limit=100).add(runtime_pb2.Part(data=b"\xff\xff", last=True))
