"""The supervisor over real sockets, with the test at the jail's end of them."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from tests.waiting import PATIENCE

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.supervisor import dispatch, supervisor, worker_failover
from cenote_worker.supervisor import dispatch as interrupts
from cenote_worker.supervisor.account.jail_account import MemoryLimit
from cenote_worker.supervisor.account.process_tree import ProcessTreeAccount, Watchdog
from cenote_worker.supervisor.account.worker_process import WorkerProcess
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.requests import JailRequest, Outcome
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content


class Jail:
    """A process that only sleeps; the test controls the far ends of its channels."""

    def __init__(self, reactor: Reactor) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        ours, self.frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control, self.control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, self.stdout = os.pipe()
        err, self.stderr = os.pipe()
        ends = JailEnds(
            pidfd=os.pidfd_open(self.process.pid),
            frames=ours,
            control=control,
            stdout=out,
            stderr=err,
            isolation="none",
            base=0,
        )
        limit = MemoryLimit(policy=SandboxPolicy().memory_bytes, base=0)
        account = ProcessTreeAccount(WorkerProcess(self.process.pid), limit, Watchdog(), -1)
        self.supervisor = Supervisor(reactor, ends, SandboxPolicy(), account, lambda: None)
        self.frames.send(jail_pb2.WorkerFrame(ready=jail_pb2.Ready(pid=1)).SerializeToString())

    def answer(self, duration: float = 0.0) -> None:
        """Reads one request and says that the cell succeeded."""
        request = jail_pb2.Request.FromString(self.frames.recv(100_000))
        frame = jail_pb2.WorkerFrame()
        frame.reply.id = request.id
        frame.reply.executed.success = True
        frame.reply.executed.duration = duration
        self.frames.send(frame.SerializeToString())

    def await_control(self, operation: str) -> None:
        """Reads the warden's messages up to that one."""
        self.control.settimeout(PATIENCE)
        while json.loads(self.control.recv(10_000))["op"] != operation:
            pass

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.supervisor.end(JailExit(reason="closed"))
        for end in (self.frames, self.control):
            end.close()
        os.close(self.stdout)
        os.close(self.stderr)


@pytest.fixture
def jail() -> Iterator[Jail]:
    made = Jail(Reactor())
    yield made
    made.close()


class Listener:
    def __init__(self) -> None:
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def output(self, stream: str, text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        self.outcomes.put(outcome)


def cell(listener: Listener) -> JailRequest:
    message, descriptors = jail_pb2.Request(), list[int]()
    Content.pack([b"1"]).to_wire(message.execute.code, descriptors)
    return JailRequest(RequestKind.EXECUTE, message, listener, descriptors)


def test_a_request_and_its_answer(jail: Jail) -> None:
    """Queued until the jail is ready, sent, answered."""
    listener = Listener()
    jail.supervisor.submit(cell(listener))
    jail.answer()
    outcome = listener.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, ExecutionResult)
    assert outcome.success


@pytest.mark.parametrize("said", [math.nan, math.inf, -math.inf, -1.0, 1e9])
def test_no_cell_took_longer_than_it_was_waited_for(jail: Jail, said: float) -> None:
    """Time limits of later work and budgets are sums of durations that jails report: a NaN would persist."""
    listener = Listener()
    jail.supervisor.submit(cell(listener))
    jail.answer(said)
    outcome = listener.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, ExecutionResult)
    assert 0 <= outcome.duration <= outcome.usage.wall < PATIENCE


def test_a_request_that_the_system_does_not_carry(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that request fails, at once and with a next step; the one after it goes through."""
    first, refused, after = Listener(), Listener(), Listener()
    jail.supervisor.submit(cell(first))
    jail.answer()
    first.outcomes.get(timeout=PATIENCE)
    with monkeypatch.context() as patch:

        def no_room(*_: object) -> None:
            raise OSError(errno.ETOOMANYREFS, "Too many references")

        patch.setattr(dispatch, "send_packet", no_room)
        jail.supervisor.submit(cell(refused))
    outcome = refused.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, UnavailableError)
    assert "try again" in str(outcome)
    jail.supervisor.submit(cell(after))
    jail.answer()
    assert isinstance(after.outcomes.get(timeout=PATIENCE), ExecutionResult)


def test_an_empty_packet_breaks_the_protocol(jail: Jail) -> None:
    """`recv` returns the same as at the end of a stream. A waiting caller is informed at once."""
    listener = Listener()
    jail.supervisor.submit(cell(listener))
    jail.frames.recv(100_000)
    jail.frames.send(b"")
    jail.process.wait(PATIENCE)
    jail.control.close()
    outcome = listener.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, ExecutionResult)
    assert outcome.error is not None
    assert "protocol" == outcome.error.reason


def test_a_jail_that_hangs_up_and_lives_on(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its answers could be read any more: it is ended, whether or not its cell has a time limit."""
    monkeypatch.setattr(supervisor, "HANGUP_SECONDS", 0.01)
    listener = Listener()
    jail.supervisor.submit(cell(listener))
    jail.frames.recv(100_000)
    jail.frames.shutdown(socket.SHUT_WR)
    jail.process.wait(PATIENCE)
    jail.control.close()
    outcome = listener.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, ExecutionResult)
    assert outcome.error is not None
    assert "protocol" == outcome.error.reason


def test_a_warden_that_answers_nothing(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """At `gvisor` a cell can be the cause: the jail is ended, and the caller is informed."""
    monkeypatch.setattr(worker_failover, "WARDEN_SECONDS", 0.01)
    answers: SimpleQueue[object] = SimpleQueue()
    jail.supervisor.status(answers.put)
    jail.process.wait(PATIENCE)
    jail.control.close()
    assert answers.get(timeout=PATIENCE) is None


@pytest.mark.slow
def test_a_successor_that_answers_nothing(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell's clock continues when its worker was killed for its time: the successor has limited time to answer."""
    monkeypatch.setattr(interrupts, "SUCCESSOR_SECONDS", 0.01)
    listener = Listener()
    request = cell(listener)
    request.timeout = 0.01
    jail.supervisor.submit(request)
    jail.await_control("kill_worker")
    jail.control.send(json.dumps({"op": "revived", "signal": 9, "step": 0, "pid": 1}).encode())
    jail.process.wait(PATIENCE)
    jail.control.close()
    outcome = listener.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, ExecutionResult)
    assert outcome.error is not None
    assert ("time", "lost") == (outcome.error.reason, outcome.state)
