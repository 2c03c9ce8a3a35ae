"""Operations that need a thread where the machine has none left: they do not begin, and block nothing later."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import until

from cenote_security.errors import UnavailableError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.egress.addresses import LOOKUPS_AT_ONCE, PublicReach
from cenote_worker.execution.results import VariableInfo
from cenote_worker.runtime import scratch_runtime
from cenote_worker.runtime.handover.handover_log import NO_HANDOVER_LOG, NoHandoverLog
from cenote_worker.runtime.patch_jobs import PatchJobs
from cenote_worker.runtime.scratch_runtime import FullRuns, Rehearsals
from cenote_worker.runtime.state.checkpoints import Acknowledger, Checkpoints
from cenote_worker.serving.calls.requests import store
from cenote_worker.serving.references import LocalReferences, ReferenceOrigin
from cenote_worker.supervisor.account.process_tree import Watchdog
from cenote_worker.supervisor.channels.host_calls import HostAnswers, Outgoing
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.transport.content import Content


class Listener:
    """Collects its outcomes."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def done(self, outcome: Any) -> None:
        self.heard.append(outcome)


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A context in which no thread can start."""

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def without() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            yield

    return without


def runtime() -> Any:
    """The parts of a runtime that patches need."""
    rerunning = SimpleNamespace(admitted=lambda _admission: contextmanager(lambda: iter([None]))())
    return SimpleNamespace(
        rerunning=lambda: rerunning,
        interrupt=lambda: None,
        calls=SimpleNamespace(once=lambda _key, listener, begin: begin(listener)),
        history=SimpleNamespace(tree=SimpleNamespace(head=1)),
        step=1,
    )


def applied(patches: PatchJobs, listener: Listener) -> None:
    patches.apply(lambda _watch: "done", listener, SimpleNamespace(text="k"), print, None)  # type: ignore


def test_a_patch(no_thread: Callable[[], Any]) -> None:
    patches, listener = PatchJobs(runtime(), NO_HANDOVER_LOG), Listener()
    with no_thread(), pytest.raises(UnavailableError, match="no thread left"):
        applied(patches, listener)
    assert not patches.busy
    applied(patches, listener)
    until(lambda: listener.heard == ["done"])


def test_a_patch_of_which_nobody_can_be_told() -> None:
    """Its caller gets the error, of whatever type, and the next patch begins."""

    class Stumbling(NoHandoverLog):
        def patch_begun(self, key: str, head: int, steps: int) -> None:
            raise OSError("too many open files")

    patches, listener = PatchJobs(runtime(), Stumbling()), Listener()
    applied(patches, listener)
    until(lambda: [OSError] == list(map(type, listener.heard)))
    assert not patches.busy


def test_a_full_run(no_thread: Callable[[], Any]) -> None:
    runs, listener = FullRuns(), Listener()
    begin: Any = runs.begin

    def work(_watch: object) -> None:
        raise LookupError

    with no_thread(), pytest.raises(UnavailableError, match="no thread left"):
        begin(work, 1, "one", "", listener, None)
    begin(work, 1, "another", "", listener, None)
    until(lambda: [LookupError] == list(map(type, listener.heard)))


def test_a_rehearsal(no_thread: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tried = SimpleNamespace(value=lambda _admission: 7, close=lambda: None)
    monkeypatch.setattr(scratch_runtime, "Rehearsal", lambda *_given: tried)
    rehearsals, listener = Rehearsals(None), Listener()  # type: ignore[arg-type]
    begin: Any = rehearsals.begin
    with no_thread(), pytest.raises(UnavailableError, match="no thread left"):
        begin(None, "one", listener, None)
    begin(None, "another", listener, None)
    until(lambda: listener.heard == [7])


def test_a_state_that_is_stored(no_thread: Callable[[], Any]) -> None:
    hosted = SimpleNamespace(patches=SimpleNamespace(busy=False), refill=object.__new__(Checkpoints))
    served: Any = SimpleNamespace(hosted=hosted, storing=threading.Lock())
    told: list[object] = []
    with no_thread(), pytest.raises(UnavailableError, match="no thread left"):
        store(served, lambda _states: "stored", told.append)  # type: ignore
    store(served, lambda _states: "stored", told.append)  # type: ignore
    until(lambda: told == ["stored"])


def test_an_answer_that_waits_to_be_durable(no_thread: Callable[[], Any]) -> None:
    """A reply says at once that it is not durable, and the next one is answered as usual."""
    acknowledger: Any = Acknowledger(lambda _supervisor: (), lambda _key, _step: None)
    refused, answered = Listener(), Listener()
    with no_thread():
        acknowledger.hold(refused, DoneReply(), lambda: None, "")
    assert [NotDurableError] == list(map(type, refused.heard))
    acknowledger.hold(answered, DoneReply(), lambda: None, "")
    until(lambda: [DoneReply] == list(map(type, answered.heard)))
    acknowledger.close()


def test_a_listener_that_fails_keeps_no_other_from_its_answer() -> None:
    """Such a failure used to end the thread, so that no later answer of that runtime was delivered."""

    class Failing(Listener):
        def done(self, outcome: object) -> None:
            super().done(outcome)
            raise ValueError("'utf-8' codec can't encode")

    acknowledger: Any = Acknowledger(lambda _supervisor: (), lambda _key, _step: None)
    failing, answered = Failing(), Listener()
    acknowledger.hold(failing, DoneReply(), lambda: None, "")
    until(lambda: failing.heard)
    acknowledger.hold(answered, DoneReply(), lambda: None, "")
    until(lambda: [DoneReply] == list(map(type, answered.heard)))
    acknowledger.close()


def test_an_answer_to_a_jail_that_does_not_read(no_thread: Callable[[], Any]) -> None:
    """The line is closed, so that the jail does not wait for an answer that is not sent."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setblocking(False)
    with near, far, no_thread():
        answers = HostAnswers(near, 1 << 30, lambda _number: None)
        while not answers._waiting and answers._open:
            answers.put(Outgoing(1, bytes(50_000), [], None))
        assert not answers._open


def test_a_jail_that_would_be_watched(no_thread: Callable[[], Any]) -> None:
    """It is not started, and the next one is watched."""

    class Watched:
        due = soonest = 0.0
        looked = 0

        def look(self) -> None:
            self.looked += 1
            self.due = self.soonest = time.monotonic() + 60

    watchdog, first, second = Watchdog(lambda: None), Watched(), Watched()
    with no_thread(), pytest.raises(UnavailableError, match="no thread left"):
        watchdog.add(first)
    watchdog.add(second)
    until(lambda: second.looked)
    assert 0 == first.looked
    watchdog.remove(second)


async def test_a_name_that_is_looked_up(
    no_thread: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lookup fails, beyond the number of slots too; later ones succeed."""
    monkeypatch.setattr("cenote_worker.egress.addresses._look_up", lambda _host: ["192.0.2.1"])
    reach = PublicReach()
    with no_thread():
        for _ in range(LOOKUPS_AT_ONCE + 1):
            with pytest.raises(OSError, match="no thread left"):
                await reach.resolve("localhost")
    assert ["192.0.2.1"] == await reach.resolve("localhost")


def test_a_value_that_is_let_go_of_in_time(no_thread: Callable[[], Any]) -> None:
    """A later `put` releases it, from then on in time again."""
    values = LocalReferences(1 << 20)
    info, origin = VariableInfo(name="x", type="bytes"), ReferenceOrigin(tenant="us", runtime="r", step=1)
    with no_thread():
        values.put(Content.of_bytes(b"1"), info, origin, holder="one", lease=0.05)
    values.put(Content.of_bytes(b"2"), info, origin, holder="one", lease=0.05)
    until(lambda: not values._kept)
    values.close()
