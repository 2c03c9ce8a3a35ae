"""Content of any size on a stream of frames: inline when small, else in chunks that follow its frame."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.sealed import Draft
from cenote_worker.content import MAX_PARTS, Content

CHUNK = 1 << 20
"""Bytes of one chunk. gRPC copies each message several times; larger ones block the line for others."""


def announce(message: jail_pb2.Payload, content: Content) -> bool:
    """Fills `message`. True when chunks of the content have to follow."""
    descriptors: list[int] = []
    content.to_wire(message, descriptors)
    return bool(descriptors)


def chunks(content: Content) -> Iterator[bytes]:
    """The bytes of sealed content. The caller closes it."""
    assert content.memory is not None
    for start in range(0, content.size, CHUNK):
        yield os.pread(content.memory.fileno(), min(CHUNK, content.size - start), start)


class Incoming:
    """Content on its way: filled with chunks until it is whole.

    Raises ProtocolViolation for more parts or bytes than allowed, and for chunks that do not add up.
    """

    def __init__(self, message: jail_pb2.Payload, limit: int) -> None:
        if message.count > MAX_PARTS or message.size > limit:
            raise ProtocolViolation(
                f"content of {message.size} bytes in {message.count} parts is over the limit"
            )
        self._size, self._count = message.size, message.count
        self._draft: Draft | None = Draft(message.size)

    def add(self, data: bytes) -> None:
        assert self._draft is not None
        if self._draft.filled + len(data) > self._size:
            raise ProtocolViolation("more chunks than the content has bytes")
        self._draft.write(data)

    def finish(self) -> Content:
        """The content, sealed; the caller owns it."""
        assert self._draft is not None
        if self._draft.filled != self._size:
            raise ProtocolViolation("fewer chunks than the content has bytes")
        draft, self._draft = self._draft, None
        return Content(size=self._size, count=self._count, memory=draft.seal())

    def close(self) -> None:
        """Nothing more will come."""
        if self._draft is not None:
            self._draft.close()
            self._draft = None


def inline(message: jail_pb2.Payload, limit: int) -> Content:
    """Content that came with its frame. Raises ProtocolViolation."""
    return Content.from_wire(message, [], limit)
