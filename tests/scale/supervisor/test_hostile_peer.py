"""A supervisor against a peer that may do anything, in any order: Hypothesis chooses the actions.

The peer is this test, at the other ends of real sockets and pipes; a child process stands for the jail, so that a
kill is a real one. The reactor is stepped by hand: same calls, no thread, no clock.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.descriptors import opened
from tests.support.supervisor.frame_fuzzer import corpus
from tests.waiting import PATIENCE, until

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import JailLostError
from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import ExecutionResult, JailStatus, StreamName
from cenote_worker.supervisor.account.jail_account import MemoryLimit
from cenote_worker.supervisor.account.process_tree import ProcessTreeAccount, Watchdog
from cenote_worker.supervisor.account.worker_process import WorkerProcess
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.reactor import Timer
from cenote_worker.supervisor.requests import JailRequest, Outcome
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import receive_packet, send_packet

WATCHDOG = Watchdog(lambda: None)
"""One for all: it keeps a thread and a descriptor."""

BODIES = {
    RequestKind.EXECUTE: "execute",
    RequestKind.FETCH: "fetch",
    RequestKind.DELETE: "delete",
    RequestKind.DESCRIBE: "describe",
    RequestKind.READ_FILE: "file",
}
ANSWERS = {
    RequestKind.EXECUTE: "executed",
    RequestKind.FETCH: "value",
    RequestKind.DELETE: "done",
    RequestKind.DESCRIBE: "variables",
    RequestKind.READ_FILE: "file",
}
NOISE = [seed.data for seed in corpus() if seed.decoder != "host"]


class SteppedReactor:
    """A reactor without a thread: `run` calls back until nothing is left to do. Timers never come."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], None]] = deque()
        self._watched: dict[int, Callable[[], None]] = {}

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return Timer(when, 0, callback)

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        assert descriptor not in self._watched
        self._watched[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)

    def run(self) -> None:
        while True:
            ready = select.select(list(self._watched), [], [], 0)[0]
            if not ready and not self._soon:
                return
            for descriptor in ready:
                if descriptor in self._watched:
                    self._watched[descriptor]()
            while self._soon:
                self._soon.popleft()()


class Heard:
    """A listener that records what it receives."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.text = ""

    def output(self, stream: StreamName, text: str) -> bool:
        self.text += text
        return True

    def done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class HostilePeer(RuleBasedStateMachine):
    """asked: the requests sent, in order, with their listeners. honest: which of them had an honest answer."""

    def __init__(self) -> None:
        super().__init__()
        self.before = len(opened())
        self.process = subprocess.Popen(["sleep", "600"])
        self.reactor = SteppedReactor()
        ours, self.frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control, self.control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, self.out = os.pipe()
        err, self.err = os.pipe()
        ends = JailEnds(
            pidfd=os.pidfd_open(self.process.pid),
            frames=ours,
            control=control,
            stdout=out,
            stderr=err,
            isolation="strict",
            base=0,
        )
        for sock in (self.frames, self.control):
            sock.setblocking(False)
        limit = MemoryLimit(policy=SandboxPolicy().memory_bytes, base=0)
        account = ProcessTreeAccount(WorkerProcess(-1), limit, WATCHDOG, -1)
        self.supervisor = Supervisor(
            self.reactor,  # type: ignore[arg-type]
            ends,
            SandboxPolicy(),
            account,
            lambda: None,
        )
        self.asked: list[tuple[RequestKind, Heard]] = []
        self.statuses: list[list[JailStatus | None]] = []
        self.honest: set[int] = set()
        self.ready = self.broken = False

    # -- the honest side --

    @initialize(honest=st.booleans())
    def start(self, honest: bool) -> None:
        if honest:
            self.say_ready()

    def say_ready(self) -> None:
        self.send(jail_pb2.WorkerFrame(ready=jail_pb2.Ready()))
        self.ready = True

    @rule(kind=st.sampled_from(list(BODIES)))
    def ask(self, kind: RequestKind) -> None:
        """A caller sends a request."""
        heard, message = Heard(), jail_pb2.Request()
        getattr(message, BODIES[kind]).SetInParent()
        self.asked.append((kind, heard))
        self.supervisor.submit(JailRequest(kind, message, heard, step=len(self.asked)))
        self.settle()

    @rule()
    def answer(self) -> None:
        """The current request is answered correctly."""
        with suppress(OSError):
            packet = receive_packet(self.frames)
            if packet is not None:
                number = jail_pb2.Request.FromString(packet.data).id
                self.honest.add(number - 1)
                self.send(_answer(number, self.asked[number - 1][0]))

    @rule(text=st.text(max_size=20), to_stderr=st.booleans())
    def print(self, text: str, to_stderr: bool) -> None:
        """Output may come at any time, as frames and through the pipes."""
        encodable = text.encode("utf-8", "replace").decode()
        self.send(jail_pb2.WorkerFrame(output=jail_pb2.Output(text=encodable, is_stderr=to_stderr)))
        with suppress(OSError):
            os.write(self.err if to_stderr else self.out, encodable.encode())
        self.settle()

    @rule()
    def ask_for_status(self) -> None:
        answers: list[JailStatus | None] = []
        self.statuses.append(answers)
        self.supervisor.status(answers.append)
        self.settle()

    @rule()
    def interrupt(self) -> None:
        self.supervisor.interrupt()
        self.settle()

    @rule()
    def warden_answers(self) -> None:
        """The warden answers one question correctly."""
        with suppress(OSError):
            data = self.control.recv(4096)
            asked = json.loads(data or b"{}")
            reply = {"op": "interrupted", "id": asked.get("id")}
            if asked.get("op") == "status":
                reply |= {"op": "status", "memory": 1000, "processes": 2}
            if data:
                self.control.send(json.dumps(reply).encode())
        self.settle()

    # -- the hostile side --

    @rule(data=st.sampled_from(NOISE) | st.binary(min_size=1, max_size=200), to_warden=st.booleans())
    def say_anything(self, data: bytes, to_warden: bool) -> None:
        with suppress(OSError):
            (self.control if to_warden else self.frames).send(data)
        self.broken = True
        self.settle()

    @rule(offset=st.integers(-1, 3), kind=st.sampled_from(list(ANSWERS)))
    def forge(self, offset: int, kind: RequestKind) -> None:
        """An answer that may fit a request that may be in progress."""
        self.broken = True
        self.send(_answer(max(len(self.asked) - offset, 0), kind))

    @rule(offset=st.integers(-1, 3), kind=st.sampled_from([RequestKind.FETCH, RequestKind.READ_FILE]))
    def forge_with_memory(self, offset: int, kind: RequestKind) -> None:
        """Likewise, with memory that may be unrequested and must be closed."""
        self.broken = True
        frame, descriptors = _answer(max(len(self.asked) - offset, 0), kind), list[int]()
        with SealedMemory.create([b"x"]) as memory:
            Content(size=1, count=0, memory=memory).to_wire(
                getattr(frame.reply, ANSWERS[kind]).content, descriptors
            )
            with suppress(OSError):
                send_packet(self.frames, frame.SerializeToString(), descriptors)
        self.settle()

    @rule(count=st.integers(1, 6))
    def send_descriptors(self, count: int) -> None:
        """Descriptors that nothing names."""
        self.broken = True
        with suppress(OSError):
            send_packet(self.frames, b"\x0a\x00", [self.out] * count)
        self.settle()

    @rule(which=st.sampled_from(["frames", "control", "out", "err"]))
    def hang_up(self, which: str) -> None:
        self.broken = self.broken or which in ("frames", "control")
        end = getattr(self, which)
        if isinstance(end, socket.socket):
            end.shutdown(socket.SHUT_RDWR)
        elif end >= 0:
            os.close(end)
            setattr(self, which, -1)
        self.settle()

    @precondition(lambda self: self.supervisor.death is None)
    @rule()
    def die(self) -> None:
        self.broken = True
        self.end_process()
        self.settle()

    # -- invariants --

    @invariant()
    def nobody_hears_twice(self) -> None:
        """At most one outcome for each request, status or not."""
        assert all(len(heard.outcomes) <= 1 for _, heard in self.asked)
        assert all(len(answers) <= 1 for answers in self.statuses)

    @invariant()
    def only_hostile_jails_die(self) -> None:
        if not self.broken and self.ready:
            assert self.supervisor.death is None

    @invariant()
    def honest_answers_arrive(self) -> None:
        if not self.broken:
            assert all(self.asked[index][1].outcomes for index in self.honest)

    @invariant()
    def each_outcome_is_of_its_kind(self) -> None:
        """A cell gives a result in any case; anything else a reply or the loss of the jail."""
        for kind, heard in self.asked:
            for outcome in heard.outcomes:
                assert isinstance(outcome, ExecutionResult) == (kind is RequestKind.EXECUTE)
                assert not isinstance(outcome, Exception) or isinstance(outcome, JailLostError)

    def teardown(self) -> None:
        """When the jail is gone, every listener has an outcome, and no descriptor is left."""
        self.end_process()
        self.settle()
        assert self.supervisor.death is not None
        assert all(len(heard.outcomes) == 1 for _, heard in self.asked)
        assert all(len(answers) == 1 for answers in self.statuses)
        self.frames.close()
        self.control.close()
        for _, heard in self.asked:
            content = getattr(heard.outcomes[0], "content", None)
            if content is not None:
                content.close()
        for end in (self.out, self.err):
            if end >= 0:
                os.close(end)
        until(lambda: len(opened()) <= self.before)

    # -- the test harness --

    def send(self, frame: jail_pb2.WorkerFrame) -> None:
        with suppress(OSError):
            self.frames.send(frame.SerializeToString())
        self.settle()

    def settle(self) -> None:
        """Lets the supervisor act. When the jail is dead its ends close, as the kernel would close them."""
        self.reactor.run()
        if self.process.poll() is not None or self._was_killed():
            for sock in (self.frames, self.control):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self.reactor.run()

    def end_process(self) -> None:
        self.process.kill()
        self.process.wait()

    def _was_killed(self) -> bool:
        """Whether the supervisor has decided to kill the jail: then its end is awaited."""
        if not self.supervisor.is_sentenced:
            return False
        return self.process.wait(timeout=PATIENCE) == -signal.SIGKILL


def _answer(number: int, kind: RequestKind) -> jail_pb2.WorkerFrame:
    frame = jail_pb2.WorkerFrame()
    frame.reply.id = number
    getattr(frame.reply, ANSWERS[kind]).SetInParent()
    return frame


TestHostilePeer = HostilePeer.TestCase
TestHostilePeer.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_plays() -> None:
    """Two thousand longer runs."""
    run_state_machine_as_test(
        HostilePeer, settings=settings(max_examples=2_000, stateful_step_count=50, deadline=None)
    )
