"""Packets on the sockets between a supervisor and its jail: one protobuf message and its descriptors.

SOCK_SEQPACKET keeps message boundaries, so a hostile peer can neither split nor glue frames; what is left to
bound is the size of one packet and the number of descriptors that it carries.

A jail in gVisor receives descriptors, but cannot send any. Memory then goes in pieces, ahead of the packet that names
it. Each packet begins with two bytes, its kind and a number:

    START  n   a first piece of the packet's n-th memory, from 0
    MORE   n   a further piece of it
    PACKET n   the packet itself, with n memories

An interrupt may end a sender between two pieces. The receiver drops those pieces at the next packet, or at the next
first memory, so that they do not end up in another one.

The fields of a message are counted before it is parsed. The parser makes an object of some 50 to 200 bytes of each
message in a list, and one takes only two bytes on the wire: sixteen megabytes from a jail would become a gigabyte
here. See "Encoding" in the documentation of Protocol Buffers.
"""

from __future__ import annotations

import array
import mmap
import os
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from cenote_security.errors import ProtocolViolation
from cenote_security.sealed_memory import SealedDraft
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MAX_PACKET = 128 * 1024
"""Bytes. Larger things travel as sealed memory beside a packet."""

MAX_DESCRIPTORS = 4
"""A message names three at most; the rest allows a clear error instead of a truncated one."""

# Numbers: combining members of `socket`'s enumerations runs Python code, which would cost each packet time.
_CLOSE_ON_EXEC, _CUT = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_HANGUP = select.POLLRDHUP | select.POLLHUP
_poll = select.poll  # a cell may replace it
_ANCILLARY = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


@dataclass(frozen=True, slots=True)
class Packet:
    """A received packet. Its receiver owns the descriptors."""

    data: bytes
    descriptors: list[int]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


Send = Callable[[socket.socket, bytes, list[int] | None], None]
"""`send_packet`, or another with its contract."""


def send_packet(sock: socket.socket, data: bytes, descriptors: list[int] | None = None) -> None:
    """Sends one packet; the caller keeps its descriptors. Raises OSError when the peer is gone."""
    if not descriptors:
        sock.send(data, socket.MSG_NOSIGNAL)
        return
    payload = array.array("i", descriptors)
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, payload)], socket.MSG_NOSIGNAL)


def receive_packet(sock: socket.socket, flags: int = 0) -> Packet | None:
    """The next packet, or None at the end of the stream.

    Raises ProtocolViolation for a packet over the limits (its descriptors are closed) and for an empty one,
    BlockingIOError when the socket does not block and has nothing.
    """
    data, ancillary, message_flags, _ = sock.recvmsg(MAX_PACKET, _ANCILLARY, _CLOSE_ON_EXEC | flags)
    packet = Packet(data, rights(ancillary))
    if message_flags & _CUT:
        packet.close()
        raise ProtocolViolation("a packet is over the limit in bytes or descriptors")
    if not data and not packet.descriptors:
        if has_ended(sock):
            return None
        raise ProtocolViolation("an empty packet")
    return packet


def has_ended(sock: socket.socket) -> bool:
    """For a socket that gave no bytes: whether that is the end of its stream, and not an empty packet.

    Both look the same to `recv`. The kernel knows whether the other end was closed, or shut down for writing.
    """
    poll = _poll()
    poll.register(sock, _HANGUP)
    return bool(poll.poll(0))


def rights(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors beside a packet, as `recvmsg` gives them."""
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return list(descriptors)


_fstat = os.fstat


START: Final = 0
MORE: Final = 1
PACKET: Final = 2

PIECE: Final = 96 * 1024
"""Bytes. Two fit the default send buffer of a socket, so that one is written while the other is read."""


def send_in_pieces(sock: socket.socket, data: bytes, descriptors: list[int] | None = None) -> None:
    """See `send_packet`. The descriptors are of memory, which must not change meanwhile."""
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


class PacketAssembly:
    """The receiver's side of one socket: gathers pieces until their packet comes."""

    def __init__(self, limit: int) -> None:
        """limit: bytes that the memories of one packet may have together."""
        self._limit = limit
        self._room = limit
        self._memories: list[SealedDraft] = []

    def take(self, packet: Packet) -> Packet | None:
        """The packet that is complete with this one; its memories are sealed descriptors. None for a piece.

        Raises ProtocolViolation for what the protocol does not permit, or this process has no room for.
        """
        try:
            return self._take(packet)
        except OSError as error:
            raise ProtocolViolation(f"memory that cannot be kept: {error.strerror}") from None

    def close(self) -> None:
        """Drops the gathered pieces."""
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
        self._memories.append(SealedDraft())

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


_SIZED = 2
"""The wire type of fields that begin with their length."""

_LARGE = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)


def check_field_count(data: bytes, kind: type[Message], most: int) -> None:
    """Takes time only for what is counted: a message without lists counts as one.

    Raises ProtocolViolation for more than `most`, and for data that is not a message of ours.
    """
    try:
        _left(data, 0, len(data), cast("Descriptor", kind.DESCRIPTOR), most)
    except IndexError:
        raise ProtocolViolation("a message that ends too early") from None


def _left(data: bytes, at: int, end: int, kind: Descriptor, room: int) -> int:
    """The room left after the fields of this message were counted."""
    lists = _with_lists(kind)
    while at < end:
        room -= 1
        if room < 0:
            raise ProtocolViolation("a message with more parts than anybody asks for")
        key, at = _varint(data, at)
        size, at = _size(data, at, key & 7)
        inner = lists.get(key >> 3) if key & 7 == _SIZED else None
        if inner is not None:
            room = _left(data, at, min(at + size, end), inner, room)
        at += size
    return room


def _size(data: bytes, at: int, coding: int) -> tuple[int, int]:
    """Size of the value after a key, and its beginning."""
    match coding:
        case 0:  # a number
            return 0, _varint(data, at)[1]
        case 1:
            return 8, at
        case _ if coding == _SIZED:
            return _varint(data, at)
        case 5:
            return 4, at
    raise ProtocolViolation("a message with a field of no kind that we use")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises IndexError after the end of the data."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ProtocolViolation("a message with a number that is too long")


@cache
def _with_lists(kind: Descriptor) -> Mapping[int, Descriptor]:
    """By number, the fields that are messages which contain lists of texts or messages, directly or nested."""
    return {
        field.number: field.message_type
        for field in kind.fields
        if field.message_type is not None and _has_lists(field.message_type)
    }


def _has_lists(kind: Descriptor) -> bool:
    listed = any(field.is_repeated and field.cpp_type in _LARGE for field in kind.fields)
    return listed or bool(_with_lists(kind))
