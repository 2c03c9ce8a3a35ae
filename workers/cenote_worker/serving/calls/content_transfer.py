"""Content transfers from and to one client.

From it: each frame that announced content waits for its last chunk. To it: short frames in order, large content chunk
by chunk between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation, UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.serving.calls.call_parser import most_bytes
from cenote_worker.serving.limits import MAX_OUTBOX_BYTES, MAX_OUTBOX_FRAMES
from cenote_worker.tenancy.usage import RuntimeUsage
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import Incoming, chunks, cut, inline

Whole = tuple[runtime_pb2.ClientFrame, str, Content]
"""A frame, the field of its body, its content."""


class Uploads:
    """Uploads of one stream; together at most twice a value's limit. books: the usage that counts them as stored."""

    def __init__(self, policy: SandboxPolicy, books: RuntimeUsage) -> None:
        self._policy = policy
        self._books = books
        self._coming: dict[int, tuple[runtime_pb2.ClientFrame, str, Incoming]] = {}
        self._announced = 0

    def __len__(self) -> int:
        return len(self._coming)

    def __contains__(self, call: int) -> bool:
        return call in self._coming

    def begin(self, frame: runtime_pb2.ClientFrame, body: str, payload: jail_pb2.Payload) -> Content | None:
        """The content, if it came with its frame; otherwise chunks are awaited.

        Raises UsageError for content over the limit, UnavailableError for too much at once, QuotaExceededError;
        OSError.
        """
        limit = most_bytes(body, self._policy)
        if payload.size > limit:
            raise UsageError(f"{payload.size} bytes; this runtime's policy takes {limit} here")
        if not payload.attached:
            return inline(payload, limit)
        if frame.call in self._coming:
            raise ProtocolViolation("content for a call that has some on its way already")
        if self._announced + payload.size > 2 * self._policy.memory_bytes:
            raise UnavailableError(f"{self._announced} bytes are on their way already; send them first")
        self._books.upload(payload.size)
        try:
            self._coming[frame.call] = frame, body, Incoming(payload, limit)
        except BaseException:
            self._books.uploaded(payload.size)
            raise
        self._announced += payload.size
        return None

    def add(self, call: int, chunk: runtime_pb2.Chunk) -> Whole | None:
        """The frame and content that are complete now. A chunk of a call that was refused or withdrawn is dropped.

        Raises ProtocolViolation for chunks that do not add up, OSError without memory.
        """
        if call not in self._coming:
            return None
        frame, body, incoming = self._coming[call]
        try:
            incoming.add(chunk.data)
            content = incoming.finish() if chunk.last else None
        except BaseException:
            self.drop(call)
            raise
        if content is None:
            return None
        self.drop(call)
        return frame, body, content

    def drop(self, call: int) -> None:
        """Drops the content of a call."""
        coming = self._coming.pop(call, None)
        if coming is not None:
            coming[2].close()
            self._announced -= coming[2].size
            self._books.uploaded(coming[2].size)

    def close(self) -> None:
        for call in list(self._coming):
            self.drop(call)


class FrameOutbox:
    """The outgoing frames and contents of one stream."""

    def __init__(
        self, filled: Callable[[], None], sent: Callable[[int], None], drained: Callable[[], None]
    ) -> None:
        """filled: called whenever something was put in. sent: called with the number of a call when all of its
        content was taken. drained: called when it was full, and is not any more.
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
        """Whether the client does not keep up."""
        return self._size > MAX_OUTBOX_BYTES or len(self._frames) > MAX_OUTBOX_FRAMES

    def put(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """content: sent in chunks after the frame; taken over."""
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
        """Drops the rest of the content of this call."""
        for sending in [sending for sending in self._contents if sending.call == call]:
            self._contents.remove(sending)
            sending.content.close()
            self._sent(call)

    def close(self) -> None:
        """Drops everything: there is no reader any more."""
        self._open = False
        self._frames.clear()
        for sending in self._contents:
            sending.content.close()
        self._contents.clear()

    def _chunk(self) -> runtime_pb2.ServerFrame | None:
        """The next chunk, of each content in turn, so that a small one need not wait for a large one."""
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
