"""Packets on the sockets between a supervisor and its jail: one protobuf message and its descriptors.

SOCK_SEQPACKET keeps message boundaries, so a hostile peer can neither split nor glue frames; what is left to
bound is the size of one packet and the number of descriptors that it carries.
"""

from __future__ import annotations

import array
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass

from cenote_security.errors import ProtocolViolation
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

MAX_PACKET = 128 * 1024
"""Bytes. Larger things travel as sealed memory beside a packet."""

MAX_DESCRIPTORS = 4
"""The most that any message names is three; the rest is room for a clear error instead of a truncated one."""

# Numbers: the members of `socket`'s enumerations are combined by Python code, which each packet would pay for.
_CLOSE_ON_EXEC, _CUT = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_HANGUP = select.POLLRDHUP | select.POLLHUP
_poll = select.poll  # a cell may replace it
_ANCILLARY = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


@dataclass(frozen=True, slots=True)
class Packet:
    """One received packet. Its receiver owns the descriptors."""

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
    """For a socket that gave no bytes: whether that is the end of its stream, and no empty packet.

    Both look the same to `recv`. The kernel knows whether the other end was closed, or shut for writing.
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
