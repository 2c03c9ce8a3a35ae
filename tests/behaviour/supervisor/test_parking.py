"""When a supervisor has an idle worker ended and restarted, with the test at the jail's end."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from functools import partial

import pytest
from tests.behaviour.supervisor.test_supervisor import Jail, Listener, cell
from tests.waiting import PATIENCE, until

from cenote_security.errors import UnavailableError
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.supervisor import running_request, worker_failover
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.requests import AuthorSession
from cenote_worker.supervisor.running_request import CellClock
from cenote_worker.supervisor.worker_failover import WorkerPresence


class Warden:
    """The messages of a jail's warden. No message arrives twice."""

    def __init__(self, jail: Jail) -> None:
        self.jail = jail

    def hears(self, operation: str) -> dict[str, object]:
        message: dict[str, object] = json.loads(self.jail.control.recv(4096))
        assert operation == message["op"]
        return message

    def says(self, operation: str, number: object = None, **facts: object) -> None:
        self.jail.control.send(json.dumps({"op": operation, "id": number, **facts}).encode())

    def park(self) -> None:
        self.says("parked", self.hears("park")["id"], is_parked=True)
        until(lambda: self.presence is WorkerPresence.AWAY)

    @property
    def presence(self) -> WorkerPresence:
        return self.jail.supervisor._parking._presence


@pytest.fixture
def jail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jail]:
    monkeypatch.setattr(worker_failover, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(running_request, "CellClock", partial(CellClock, grace=PATIENCE))
    made = Jail(Reactor())
    made.control.settimeout(PATIENCE)
    made.frames.settimeout(PATIENCE)
    yield made
    made.close()


@pytest.fixture
def warden(jail: Jail) -> Warden:
    """The warden of a jail that has run a cell."""
    ran(asked(jail), jail)
    return Warden(jail)


def asked(jail: Jail) -> Listener:
    listener = Listener()
    jail.supervisor.submit(cell(listener))
    return listener


def ran(listener: Listener, jail: Jail) -> None:
    jail.answer()
    outcome = listener.outcomes.get(timeout=PATIENCE)
    assert isinstance(outcome, ExecutionResult)
    assert outcome.success


def test_a_request_while_it_ends(warden: Warden, jail: Jail) -> None:
    """It is sent once the next worker has started, and not before."""
    number = warden.hears("park")["id"]
    listener = asked(jail)
    warden.says("parked", number, is_parked=True)
    number = warden.hears("unpark")["id"]
    assert [] == select.select([jail.frames], [], [], 0)[0]
    warden.says("unparked", number, pid=7)
    ran(listener, jail)
    warden.park()


def test_an_interrupt_while_it_comes(warden: Warden, jail: Jail) -> None:
    """It is meant for the request that would be running by then, and reaches it."""
    warden.park()
    assert not jail.supervisor.interrupt()
    listener = asked(jail)
    assert not jail.supervisor.interrupt(AuthorSession())
    assert jail.supervisor.interrupt()
    warden.says("unparked", warden.hears("unpark")["id"], pid=7)
    warden.says("interrupted", warden.hears("interrupt")["id"])
    ran(listener, jail)


def test_one_that_stays_is_not_asked_again(warden: Warden, jail: Jail) -> None:
    """Until another request has run."""
    warden.says("parked", warden.hears("park")["id"], is_parked=False)
    until(lambda: warden.presence is WorkerPresence.THERE)
    assert [] == select.select([jail.control], [], [], 0)[0]
    ran(asked(jail), jail)
    warden.park()


def test_none_can_be_made(warden: Warden, jail: Jail) -> None:
    """The caller is informed that nothing ran; a second attempt may succeed."""
    warden.park()
    refused = asked(jail)
    warden.says("unparked", warden.hears("unpark")["id"], pid=0)
    assert isinstance(refused.outcomes.get(timeout=PATIENCE), UnavailableError)
    listener = asked(jail)
    warden.says("unparked", warden.hears("unpark")["id"], pid=7)
    ran(listener, jail)


def test_none_comes(warden: Warden, jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """In time: no caller waits for ever."""
    warden.park()
    monkeypatch.setattr(worker_failover, "COMING_SECONDS", 0.0)
    asked(jail)
    until(lambda: jail.supervisor.is_sentenced)


def test_one_that_was_to_be_killed_meanwhile(warden: Warden, jail: Jail) -> None:
    """Another replaces it at once, without a request for it."""
    warden.park()
    jail.supervisor.strike(JailExit(reason="time"))
    warden.hears("kill_worker")
    warden.says("revived", signal=9, step=0, pid=7)
    warden.park()


def test_one_that_dies_while_it_is_asked_to_end(warden: Warden, jail: Jail) -> None:
    """Both messages arrive, in either order."""
    number = warden.hears("park")["id"]
    warden.says("revived", signal=9, step=0, pid=7)
    warden.says("parked", number, is_parked=False)
    until(lambda: warden.presence is WorkerPresence.THERE)
    ran(asked(jail), jail)
    warden.park()
