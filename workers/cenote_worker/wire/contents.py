"""Content of any size on a stream of frames: inline when small, else in chunks that follow its frame."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.sealed import Draft, SealedMemory
from cenote_worker.content import INLINE_LIMIT, MAX_PARTS, Content

CHUNK = 1 << 20
"""Bytes of one chunk. gRPC copies each message several times; larger ones block the line for others."""


def announce(message: jail_pb2.Payload, content: Content) -> bool:
    """Fills `message`. True when chunks of the content have to follow."""
    descriptors: list[int] = []
    content.to_wire(message, descriptors)
    return bool(descriptors)


def chunks(content: Content) -> Iterator[bytes]:
    """The bytes of sealed content, in one piece at least. The caller closes it."""
    assert content.memory is not None
    for start in range(0, max(content.size, 1), CHUNK):
        yield os.pread(content.memory.fileno(), min(CHUNK, content.size - start), start)


class Incoming:
    """Content on its way: filled with chunks until it is whole.

    limit: bytes. Raises ProtocolViolation for more parts or bytes than allowed, and for chunks that do not add up;
    OSError where there is no memory for it.
    """

    def __init__(self, message: jail_pb2.Payload, limit: int) -> None:
        _check(message, limit)
        self.size = message.size
        self._count = message.count
        self._draft = Draft()

    def add(self, data: bytes) -> None:
        if self._draft.filled + len(data) > self.size:
            raise ProtocolViolation("more chunks than the content has bytes")
        self._draft.write(data)

    def finish(self) -> Content:
        """The content, sealed; the caller owns it."""
        if self._draft.filled != self.size:
            raise ProtocolViolation("fewer chunks than the content has bytes")
        return Content(size=self.size, count=self._count, memory=self._draft.seal())

    def close(self) -> None:
        """Nothing more will come."""
        self._draft.close()


def inline(message: jail_pb2.Payload, limit: int) -> Content:
    """Content that came with its frame; what is long for a packet is put into sealed memory.

    Raises ProtocolViolation, and OSError where there is no memory for it.
    """
    _check(message, limit)
    if len(message.inline) != message.size:
        raise ProtocolViolation("inline content is not of the stated size")
    if message.size > INLINE_LIMIT:
        memory = SealedMemory.create([message.inline])
        return Content(size=message.size, count=message.count, memory=memory)
    return Content(size=message.size, count=message.count, inline=message.inline)


def _check(message: jail_pb2.Payload, limit: int) -> None:
    if message.count > MAX_PARTS or message.size > limit:
        raise ProtocolViolation(f"content of {message.size} bytes in {message.count} parts is over the limit")
