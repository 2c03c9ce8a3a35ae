"""Frames on their way to one client: short ones in order, large content chunk by chunk between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from cenote_proto.v1 import runtime_pb2
from cenote_worker.content import Content
from cenote_worker.serving.limits import MAX_OUTBOX_BYTES, MAX_OUTBOX_FRAMES
from cenote_worker.wire.contents import chunks
from cenote_worker.wire.parts import cut


class Outbox:
    """Of one stream."""

    def __init__(
        self, filled: Callable[[], None], sent: Callable[[int], None], drained: Callable[[], None]
    ) -> None:
        """filled: called whenever something was put in. sent: with the number of a call, when all of its content has
        gone. drained: when it was full, and is not any more.
        """
        self._filled = filled
        self._sent = sent
        self._drained = drained
        self._frames: deque[runtime_pb2.ServerFrame] = deque()
        self._size = 0
        self._parts: Iterator[runtime_pb2.ServerFrame] = iter(())
        self._contents: deque[_Sending] = deque()
        self._open = True

    @property
    def full(self) -> bool:
        """The client does not keep up."""
        return self._size > MAX_OUTBOX_BYTES or len(self._frames) > MAX_OUTBOX_FRAMES

    def put(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """content: what has to follow in chunks; taken over."""
        if not self._open:
            if content is not None:
                content.close()
            return
        self._frames.append(frame)
        self._size += frame.ByteSize()
        if content is not None:
            self._contents.append(_Sending(frame.call, content))
        self._filled()

    def next(self) -> runtime_pb2.ServerFrame | None:
        """The next message; None when there is none."""
        part = next(self._parts, None)
        if part is None and self._frames:
            was_full = self.full
            frame = self._frames.popleft()
            self._size -= frame.ByteSize()
            self._parts = cut(frame)
            part = next(self._parts)
            if was_full and not self.full:
                self._drained()
        return part if part is not None else self._chunk()

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""
        for sending in [sending for sending in self._contents if sending.call == call]:
            self._contents.remove(sending)
            sending.content.close()
            self._sent(call)

    def close(self) -> None:
        """Nobody reads any more."""
        self._open = False
        self._frames.clear()
        for sending in self._contents:
            sending.content.close()
        self._contents.clear()

    def _chunk(self) -> runtime_pb2.ServerFrame | None:
        """Of each content in turn, so that a small one need not wait for a large one."""
        if not self._contents:
            return None
        sending = self._contents.popleft()
        data = next(sending.pieces)
        sending.left -= len(data)
        if sending.left:
            self._contents.append(sending)
        else:
            sending.content.close()
            self._sent(sending.call)
        chunk = runtime_pb2.Chunk(data=data, last=not sending.left)
        return runtime_pb2.ServerFrame(call=sending.call, chunk=chunk)


class _Sending:
    def __init__(self, call: int, content: Content) -> None:
        self.call = call
        self.content = content
        self.left = content.size
        self.pieces = chunks(content)
