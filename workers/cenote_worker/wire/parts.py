"""Frames that are too long for one message: serialised, cut, and put together again."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import ProtocolViolation

LONGEST = 1 << 20
"""Bytes of a frame that goes as it is; gRPC's own limit for a message is 4 MiB."""


def cut(frame: runtime_pb2.ServerFrame) -> Iterator[runtime_pb2.ServerFrame]:
    """The frame, or the parts of it."""
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
        """The frame, once it is whole. Raises ProtocolViolation."""
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
