"""What waits to be written to one stream: frames in order, and the chunks of large contents between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from cenote_proto.v1 import runtime_pb2
from cenote_worker.content import Content
from cenote_worker.wire.contents import chunks


class Outbox:
    """Frames go first, so that an interrupt never waits behind a gigabyte; contents take turns, chunk by chunk."""

    def __init__(self) -> None:
        self._frames: deque[runtime_pb2.ClientFrame] = deque()
        self._contents: deque[tuple[int, int, Iterator[bytes]]] = deque()

    def put(self, frame: runtime_pb2.ClientFrame) -> None:
        self._frames.append(frame)

    def put_content(self, call: int, content: Content) -> None:
        """Chunks of a content whose frame was put before. The content must stay open until it is written."""
        self._contents.append((call, content.size, chunks(content)))

    def forget(self, call: int) -> None:
        """No more chunks of this call."""
        self._contents = deque(waiting for waiting in self._contents if waiting[0] != call)

    def take(self) -> runtime_pb2.ClientFrame | None:
        """What is to be written next; None when there is nothing."""
        if self._frames:
            return self._frames.popleft()
        if not self._contents:
            return None
        call, left, pieces = self._contents.popleft()
        data = next(pieces)
        left -= len(data)
        if left:
            self._contents.append((call, left, pieces))
        return runtime_pb2.ClientFrame(call=call, chunk=runtime_pb2.Chunk(data=data, last=not left))
