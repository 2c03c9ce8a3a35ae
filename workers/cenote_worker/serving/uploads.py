"""Content on its way from a client: each frame that announced some, until its last chunk is there."""

from __future__ import annotations

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation, UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.content import Content
from cenote_worker.serving.edge import most_bytes
from cenote_worker.tenancy.books import Books
from cenote_worker.wire.contents import Incoming, inline

Whole = tuple[runtime_pb2.ClientFrame, str, Content]
"""A frame, the field of its body, its content."""


class Uploads:
    """Of one stream; together no larger than two values of its runtime may be. books: where they count as stored."""

    def __init__(self, policy: SandboxPolicy, books: Books) -> None:
        self._policy = policy
        self._books = books
        self._coming: dict[int, tuple[runtime_pb2.ClientFrame, str, Incoming]] = {}
        self._announced = 0

    def __len__(self) -> int:
        return len(self._coming)

    def __contains__(self, call: int) -> bool:
        return call in self._coming

    def begin(self, frame: runtime_pb2.ClientFrame, body: str, payload: jail_pb2.Payload) -> Content | None:
        """The content, if it came with its frame; else chunks are awaited.

        Raises UsageError for more than may come, UnavailableError for too much at once, QuotaExceededError; OSError.
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
        """What is whole now. A chunk of a call that was refused or withdrawn is dropped.

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
        """Its content is not wanted any more."""
        coming = self._coming.pop(call, None)
        if coming is not None:
            coming[2].close()
            self._announced -= coming[2].size
            self._books.uploaded(coming[2].size)

    def close(self) -> None:
        for call in list(self._coming):
            self.drop(call)
