"""Requests to a descriptor store and its answers: one packet each, with the descriptors beside it.

    operation or status (1 byte)  length of the key (2 bytes)  key  record

They travel on a socket in a folder that is closed to other users. Both sides are trusted and of one user; the bounds
guard against mistakes.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from cenote_worker.transport.packets import has_ended, rights

_SOCKET = "keeper.socket"


@contextmanager
def address(folder: Path) -> Iterator[str]:
    """A path of the socket that fits into an address of 108 bytes, however long the folder's own is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


MAX_KEY: Final = 300
"""Bytes. A kind, the name of a runtime, a number."""

MAX_RECORD: Final = 96 * 1024
"""Bytes: a packet must fit a socket's send buffer. Larger data belongs in a memory file."""

MAX_DESCRIPTORS: Final = 16
"""A jail has seven."""

MAX_AWAITED: Final = 64
"""Messages of one client that are not answered yet. The store takes this many before it turns to the next client."""

_HEAD: Final = struct.Struct("<BH")
_ROOM: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


class StoreOperation(IntEnum):
    PUT = 1
    GET = 2
    DROP = 3
    LIST = 4
    SHUT_DOWN = 5


class StoreStatus(IntEnum):
    DONE = 1
    UNKNOWN = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMessage:
    """The receiver of a message owns its descriptors."""

    kind: int
    key: str = ""
    record: bytes = b""
    descriptors: Sequence[int] = ()

    def send(self, sock: socket.socket, flags: int = 0) -> None:
        """The sender keeps its descriptors. Raises OSError."""
        key = self.key.encode()
        packet = _HEAD.pack(self.kind, len(key)) + key + self.record
        socket.send_fds(sock, [packet], self.descriptors, flags | socket.MSG_NOSIGNAL)

    @classmethod
    def receive(cls, sock: socket.socket) -> StoreMessage | None:
        """None at the end. Raises OSError; ValueError for what is no message, its descriptors closed."""
        size = _HEAD.size + MAX_KEY + MAX_RECORD
        # Not recv_fds, which drops its flags: what is received must not be inherited by a program started here.
        packet, ancillary, flags, _ = sock.recvmsg(size, _ROOM, socket.MSG_CMSG_CLOEXEC)
        descriptors = rights(ancillary)
        if not packet and not descriptors and has_ended(sock):
            return None
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ValueError("a message with too much, or no room for its descriptors in this process")
            return cls._parsed(packet, descriptors)
        except ValueError:
            close_all(descriptors)
            raise

    @classmethod
    def _parsed(cls, packet: bytes, descriptors: Sequence[int]) -> StoreMessage:
        if len(packet) < _HEAD.size:
            raise ValueError("a message without its head")
        kind, length = _HEAD.unpack_from(packet)
        key = packet[_HEAD.size : _HEAD.size + length]
        if len(key) != length:
            raise ValueError("a message without its key")
        record = packet[_HEAD.size + length :]
        return cls(kind=kind, key=key.decode(), record=record, descriptors=descriptors)


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
