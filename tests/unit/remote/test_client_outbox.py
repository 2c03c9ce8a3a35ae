"""What is sent on a connection, and in which order."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.runtime.remote.session import ClientFrameQueue
from cenote_proto.v1 import runtime_pb2
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import CHUNK


def frame(call: int) -> runtime_pb2.ClientFrame:
    return runtime_pb2.ClientFrame(call=call, status=runtime_pb2.StatusQuestion())


def sealed(data: bytes) -> Content:
    content = Content.of_bytes(data)
    assert content.memory is not None
    return content


def test_nothing() -> None:
    """An empty outbox returns nothing."""
    assert ClientFrameQueue().take() is None


def test_frames_overtake_contents() -> None:
    """An interrupt does not wait for a gigabyte."""
    outbox = ClientFrameQueue()
    outbox.put(frame(1))
    with_chunks = sealed(bytes(3 * CHUNK))
    outbox.put_content(1, with_chunks)
    first, second = outbox.take(), outbox.take()
    outbox.put(frame(2))
    third = outbox.take()
    assert ["status", "chunk", "status"] == [
        taken.WhichOneof("body") for taken in (first, second, third) if taken is not None
    ]
    with_chunks.close()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(min_value=49_153, max_value=3 * CHUNK), min_size=1, max_size=4))
def test_contents_arrive_whole(sizes: list[int]) -> None:
    """Each in order and with one last chunk, however many alternate."""
    outbox, contents = ClientFrameQueue(), [sealed(bytes([n]) * size) for n, size in enumerate(sizes)]
    for number, content in enumerate(contents):
        outbox.put_content(number, content)
    received: dict[int, bytes] = defaultdict(bytes)
    last: list[int] = []
    while (taken := outbox.take()) is not None:
        assert taken.call not in last
        received[taken.call] += taken.chunk.data
        if taken.chunk.last:
            last.append(taken.call)
    assert {n: bytes([n]) * size for n, size in enumerate(sizes)} == received
    assert list(range(len(sizes))) == sorted(last)
    for content in contents:
        content.close()


def test_what_is_forgotten_is_not_sent() -> None:
    """Chunks of a withdrawn call are dropped; those of others are sent."""
    outbox, contents = ClientFrameQueue(), [sealed(bytes(CHUNK)), sealed(bytes(CHUNK))]
    for number, content in enumerate(contents):
        outbox.put_content(number, content)
    outbox.forget(0)
    taken = outbox.take()
    assert taken is not None
    assert (1, True) == (taken.call, taken.chunk.last)
    assert outbox.take() is None
    for content in contents:
        content.close()
