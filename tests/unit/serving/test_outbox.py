"""The outbox: short frames first and in order, contents in turn, in bounded memory."""

from __future__ import annotations

from cenote_proto.v1 import runtime_pb2
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.serving.calls.content_transfer import FrameOutbox
from cenote_worker.serving.limits import MAX_OUTBOX_BYTES, MAX_OUTBOX_FRAMES
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import CHUNK, LONGEST


class Told:
    """The notifications of an outbox."""

    def __init__(self) -> None:
        self.filled = 0
        self.sent: list[int] = []
        self.drained = 0
        self.outbox = FrameOutbox(self._filled, self.sent.append, self._drained)

    def _filled(self) -> None:
        self.filled += 1

    def _drained(self) -> None:
        self.drained += 1


def frame(call: int, text: str = "") -> runtime_pb2.ServerFrame:
    return runtime_pb2.ServerFrame(call=call, output=runtime_pb2.CellOutput(text=text))


def content(size: int) -> Content:
    return Content(size=size, count=0, memory=SealedMemory.create([bytes(size)]))


def calls(outbox: FrameOutbox) -> list[tuple[int, str | None, bool]]:
    """(number, kind, whether it is the last chunk or part) of all that waits."""
    found = []
    while (one := outbox.next()) is not None:
        kind = one.WhichOneof("body")
        found.append((one.call, kind, one.chunk.last or one.part.last))
    return found


def test_frames_in_their_order() -> None:
    """First in, first out; nothing waits at the end."""
    told = Told()
    for call in (3, 1, 2):
        told.outbox.put(frame(call))
    assert [(3, "output", False), (1, "output", False), (2, "output", False)] == calls(told.outbox)
    assert 3 == told.filled


def test_contents_take_turns_behind_frames() -> None:
    """A small one does not wait for a large one, nor a frame for either."""
    told = Told()
    told.outbox.put(frame(1), content(3 * CHUNK))
    told.outbox.put(frame(2), content(10))
    assert [1, 2, 1, 2] == [one.call for _ in range(4) if (one := told.outbox.next()) is not None]
    told.outbox.put(frame(3))
    assert [(3, "output", False), (1, "chunk", False), (1, "chunk", True)] == calls(told.outbox)
    assert [2, 1] == told.sent


def test_a_long_frame_goes_in_parts_without_a_gap() -> None:
    """Its parts are consecutive: a call has one frame in parts at a time."""
    told = Told()
    told.outbox.put(frame(1, "x" * (2 * LONGEST)))
    told.outbox.put(frame(2))
    found = calls(told.outbox)
    assert [(1, "part", False), (1, "part", False), (1, "part", True), (2, "output", False)] == found


def test_empty_content() -> None:
    """It ends with a chunk too, or its receiver would wait for ever."""
    told = Told()
    told.outbox.put(frame(1), content(0))
    assert [(1, "output", False), (1, "chunk", True)] == calls(told.outbox)


def test_full_by_frames() -> None:
    """At the limit it is not full, one past it is; it notifies when it is not full any more."""
    told = Told()
    for _ in range(MAX_OUTBOX_FRAMES):
        told.outbox.put(frame(1))
    assert not told.outbox.full
    told.outbox.put(frame(1))
    assert told.outbox.full
    told.outbox.next()
    assert (False, 1) == (told.outbox.full, told.drained)
    told.outbox.next()
    assert 1 == told.drained


def test_full_by_bytes() -> None:
    """However few the frames are."""
    told = Told()
    told.outbox.put(frame(1, "x" * MAX_OUTBOX_BYTES))
    assert told.outbox.full
    told.outbox.next()
    assert not told.outbox.full


def test_a_content_that_is_not_wanted_any_more() -> None:
    """It is closed, and counts as sent."""
    told, unwanted = Told(), content(3 * CHUNK)
    told.outbox.put(frame(1), unwanted)
    told.outbox.put(frame(2), content(1))
    told.outbox.forget(1)
    assert [(1, "output", False), (2, "output", False), (2, "chunk", True)] == calls(told.outbox)
    assert ([1, 2], -1) == (told.sent, unwanted.memory and unwanted.memory._fd)


def test_a_closed_outbox() -> None:
    """It closes its contents, and those that are added later."""
    told, before, after = Told(), content(10), content(10)
    told.outbox.put(frame(1), before)
    told.outbox.close()
    told.outbox.put(frame(2), after)
    assert [] == calls(told.outbox)
    assert [True, True] == [one.memory is not None and one.memory._fd < 0 for one in (before, after)]
