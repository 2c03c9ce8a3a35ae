"""Splits data that is too long for one message of a stream: content in chunks after its frame, and frames in parts.

Content is inline when small. A long frame is serialised, cut, and put together again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.sealed_memory import SealedDraft, SealedMemory
from cenote_worker.transport.content import INLINE_LIMIT, MAX_PARTS, Content

CHUNK = 1 << 20
"""Bytes of one chunk. gRPC copies each message several times; larger ones delay other messages."""


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
    """Content that is being received: filled with chunks until it is complete.

    limit: bytes. Raises ProtocolViolation for more parts or bytes than allowed, and for chunks that do not add up;
    OSError where there is no memory for it.
    """

    def __init__(self, message: jail_pb2.Payload, limit: int) -> None:
        _check(message, limit)
        self.size = message.size
        self._count = message.count
        self._draft = SealedDraft()

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
        """Drops incomplete content: nothing more will come."""
        self._draft.close()


def inline(message: jail_pb2.Payload, limit: int) -> Content:
    """Content that came with its frame; content too long for a packet is put into sealed memory.

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


LONGEST = 1 << 20
"""Bytes of the longest frame that is sent whole; gRPC's own limit for a message is 4 MiB."""


def cut(frame: runtime_pb2.ServerFrame) -> Iterator[runtime_pb2.ServerFrame]:
    """The frame, or its parts if it is long."""
    if frame.ByteSize() <= LONGEST:
        yield frame
        return
    data = frame.SerializeToString()
    for start in range(0, len(data), LONGEST):
        part = runtime_pb2.Part(data=data[start : start + LONGEST], last=start + LONGEST >= len(data))
        yield runtime_pb2.ServerFrame(call=frame.call, part=part)


class Joiner:
    """Puts the parts of one frame together. limit: bytes of the frame."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()

    def add(self, part: runtime_pb2.Part) -> runtime_pb2.ServerFrame | None:
        """The frame, once it is complete. Raises ProtocolViolation."""
        if len(self._data) + len(part.data) > self._limit:
            raise ProtocolViolation("a frame in parts is over the limit")
        self._data += part.data
        if not part.last:
            return None
        data, self._data = bytes(self._data), bytearray()
        try:
            return runtime_pb2.ServerFrame.FromString(data)
        except DecodeError:
            raise ProtocolViolation("parts that are no frame") from None
