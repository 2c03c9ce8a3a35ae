"""Answers to a jail that reads them late or never: the sender does not wait, and stores a bounded amount."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.descriptors import MEMORY, all_closed
from tests.support.hosted.listening import NoHosts
from tests.waiting import PATIENCE, until

from cenote_proto.v1 import jail_pb2
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import HostFailure
from cenote_worker.supervisor.channels import host_calls
from cenote_worker.supervisor.channels.host_calls import HostCallChannel
from cenote_worker.transport.content import Content

LIMIT = 1 << 20
NUMBERS = range(1, 2_001)


class Jail:
    """The far end of a line, which reads at the test's pace. Its calls are answered at once, by the thread that reads
    them: the reactor's.
    """

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.line = HostCallChannel(ours, NoHosts(), LIMIT)

    def call(self, number: int) -> None:
        request = jail_pb2.HostRequest(call=jail_pb2.HostCall(id=number, target="nothing"))
        self.socket.send(request.SerializeToString())
        assert self.line.read(1)

    def answered(self) -> int:
        return jail_pb2.HostReply.FromString(self.socket.recv(100_000)).id


@pytest.fixture
def jail() -> Iterator[Jail]:
    made = Jail()
    yield made
    made.line.close()
    made.socket.close()


def test_a_jail_that_reads_late_keeps_nobody_waiting(jail: Jail) -> None:
    """Calls are read while answers wait, by the one thread that reads for all jails; none is lost or reordered."""
    for number in NUMBERS:
        jail.call(number)
    assert list(NUMBERS) == [jail.answered() for _ in NUMBERS]
    until(lambda: not jail.line._answers._sending)
    jail.call(len(NUMBERS) + 1)
    assert len(NUMBERS) + 1 == jail.answered()


def test_what_waits_is_bounded_by_bytes(jail: Jail) -> None:
    """When the socket is full, values wait up to the limit; past it the line is closed, and they are freed."""
    for number in NUMBERS:
        jail.call(number)
    room = LIMIT - jail.line._answers._size
    with all_closed(MEMORY):
        for size in (room // 2, room):
            memory = SealedMemory.create([bytes(size)])
            jail.line.answer(1, Content(size=size, count=0, memory=memory))
        assert not jail.line.read(1)


def test_what_waits_is_bounded_by_number(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are short, and each is an object."""
    monkeypatch.setattr(host_calls, "MAX_WAITING", 10)
    while (number := len(jail.line._answers._waiting)) < host_calls.MAX_WAITING:
        jail.call(number)
    jail.line.answer(1, HostFailure("ValueError", "one too many"))
    assert not jail.line.read(1)


def test_a_jail_that_never_reads_is_cut_off(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its timeout is over, the sending thread ends too, and closes its descriptor."""
    monkeypatch.setattr(host_calls, "PATIENCE", 0.01)
    request = jail_pb2.HostRequest(call=jail_pb2.HostCall(id=1, target="nothing"))
    with all_closed("socket:"):
        with suppress(BrokenPipeError):
            while jail.line._answers._open:
                jail.socket.send(request.SerializeToString())
                jail.line.read(1)
        until(lambda: not jail.line._answers._open)
