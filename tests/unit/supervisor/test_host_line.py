"""The number of calls that a jail may have waiting on its host line."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.support.descriptors import MEMORY, all_closed

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.supervisor.channels.host_calls import MAX_ATTACHED, HostCall, HostCallChannel
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import send_packet


class Slow:
    """A HostHandler that holds its calls, and notes which are cancelled."""

    def __init__(self) -> None:
        self.held: dict[int, HostCall] = {}
        self.cancelled: list[int] = []

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        self.held[call.id] = call

    def cancel(self, call_id: int) -> None:
        self.cancelled.append(call_id)
        self.held.pop(call_id).close()

    def release(self, reference: int) -> None:
        pass

    def ended(self) -> None:
        for call in self.held.values():
            call.close()


class Jail:
    """The far end of a line."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.handler = Slow()
        self.line = HostCallChannel(ours, self.handler, 1 << 20)

    def call(self, number: int, *, opaque: bool = False) -> None:
        """With arguments in memory. opaque: with a value to pass on, whose memory is missing."""
        request, descriptors = jail_pb2.HostRequest(), list[int]()
        request.call.id, request.call.target = number, "f"
        with SealedMemory.create([b"x"]) as memory:
            Content(size=1, count=0, memory=memory).to_wire(request.call.arguments, descriptors)
            if opaque:
                request.call.opaque.CopyFrom(request.call.arguments)
            send_packet(self.socket, request.SerializeToString(), descriptors)
        assert self.line.read(1)

    def cancel(self, number: int) -> None:
        self.socket.send(jail_pb2.HostRequest(cancel=jail_pb2.HostCancel(id=number)).SerializeToString())
        assert self.line.read(1)

    def close(self) -> None:
        self.line.close()
        self.socket.close()


@pytest.fixture
def jail() -> Iterator[Jail]:
    with all_closed(MEMORY):
        made = Jail()
        yield made
        made.close()


def test_a_jail_holds_so_many_descriptors_of_its_supervisor(jail: Jail) -> None:
    """At the limit a call is passed on, one past it refused; each finished call makes room for another."""
    for number in range(MAX_ATTACHED):
        jail.call(number)
    jail.call(MAX_ATTACHED)
    assert MAX_ATTACHED == len(jail.handler.held)
    assert "large arguments" in jail_pb2.HostReply.FromString(jail.socket.recv(1_000)).error.message
    jail.cancel(0)
    jail.call(MAX_ATTACHED + 1)
    assert MAX_ATTACHED + 1 in jail.handler.held


def test_a_call_is_cancelled_once(jail: Jail) -> None:
    """Messages about unknown or finished calls have no effect."""
    jail.call(1)
    for number in (1, 1, 2):
        jail.cancel(number)
    assert [1] == jail.handler.cancelled


def test_an_empty_packet_is_no_end(jail: Jail) -> None:
    """The stream ends only when the jail's end is closed."""
    jail.socket.send(b"")
    with pytest.raises(ProtocolViolation, match="empty"):
        jail.line.read(1)
    jail.socket.shutdown(socket.SHUT_WR)
    assert not jail.line.read(1)


def test_what_came_with_half_a_call_is_given_back(jail: Jail) -> None:
    """Its arguments arrived, and the value to pass on did not: neither is delivered."""
    with pytest.raises(ProtocolViolation, match="without its descriptor"):
        jail.call(1, opaque=True)
    assert {} == jail.handler.held
