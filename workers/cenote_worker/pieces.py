"""Packets out of a jail that can pass no descriptor: memory goes in pieces, ahead of the packet that names it.

gVisor takes descriptors in, and lets none out. Each packet then begins with two bytes, what it is and a number:

    START  n   a first piece of the packet's n-th memory, from 0
    MORE   n   a further piece of it
    PACKET n   the packet itself, with n memories

An interrupt may end a sender between two pieces. What has come by then is forgotten with the next packet, or the next
first memory, so that it ends up in no other.
"""

from __future__ import annotations

import mmap
import os
import socket
from typing import Final

from cenote_security.errors import ProtocolViolation
from cenote_security.sealed import Draft
from cenote_worker.frames import MAX_DESCRIPTORS, Packet

_fstat = os.fstat


START: Final = 0
MORE: Final = 1
PACKET: Final = 2

PIECE: Final = 96 * 1024
"""Bytes. Two fit the default send buffer of a socket, so that one is written while the other is read."""


def send_in_pieces(sock: socket.socket, data: bytes, descriptors: list[int] | None = None) -> None:
    """See `send_packet`. The descriptors are of memory, which nobody changes meanwhile."""
    memories = descriptors or []
    for number, memory in enumerate(memories):
        _send_memory(sock, number, memory)
    _send(sock, PACKET, len(memories), data)


def _send_memory(sock: socket.socket, number: int, memory: int) -> None:
    size = _fstat(memory).st_size
    if not size:
        _send(sock, START, number, b"")
        return
    with (
        mmap.mmap(memory, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as pages,
        memoryview(pages) as view,
    ):
        for offset in range(0, size, PIECE):
            with view[offset : offset + PIECE] as piece:
                _send(sock, MORE if offset else START, number, piece)


def _send(sock: socket.socket, kind: int, number: int, data: bytes | memoryview) -> None:
    sock.sendmsg([bytes((kind, number)), data], [], socket.MSG_NOSIGNAL)


class Assembly:
    """The receiver's side of one socket: gathers pieces until their packet comes."""

    def __init__(self, limit: int) -> None:
        """limit: bytes that the memories of one packet may have together."""
        self._limit = limit
        self._room = limit
        self._memories: list[Draft] = []

    def take(self, packet: Packet) -> Packet | None:
        """The packet that is complete with this one; its memories are sealed descriptors. None for a piece.

        Raises ProtocolViolation for what the protocol has no place for, or this process no room.
        """
        try:
            return self._take(packet)
        except OSError as error:
            raise ProtocolViolation(f"memory that cannot be kept: {error.strerror}") from None

    def close(self) -> None:
        """Forget what was gathered."""
        memories, self._memories, self._room = self._memories, [], self._limit
        for memory in memories:
            memory.close()

    def _take(self, packet: Packet) -> Packet | None:
        if packet.descriptors or len(packet.data) < 2:
            packet.close()
            raise ProtocolViolation("a packet that is neither whole nor a piece")
        kind, number = packet.data[:2]
        data = memoryview(packet.data)[2:]
        if kind == PACKET:
            return Packet(bytes(data), self._gathered(number))
        if kind == START:
            self._start(number)
        elif kind != MORE or number != len(self._memories) - 1:
            raise ProtocolViolation("a piece of nothing")
        self._add(data)
        return None

    def _start(self, number: int) -> None:
        if number == 0:
            self.close()
        if number != len(self._memories) or number >= MAX_DESCRIPTORS:
            raise ProtocolViolation("a memory out of turn")
        self._memories.append(Draft())

    def _add(self, data: memoryview) -> None:
        if len(data) > self._room:
            raise ProtocolViolation(f"memories of more than {self._limit} bytes")
        self._room -= len(data)
        self._memories[-1].write(data)

    def _gathered(self, count: int) -> list[int]:
        if count == 0:
            self.close()
        if count != len(self._memories):
            raise ProtocolViolation("a packet with more or fewer memories than came before it")
        memories, self._memories, self._room = self._memories, [], self._limit
        return [memory.seal().fileno() for memory in memories]
