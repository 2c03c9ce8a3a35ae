"""Jails whose code delays their filling without limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from tests.support.hosted.listening import Heard, NoHosts
from tests.waiting import PATIENCE, until

from cenote_security.errors import CenoteError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.execution.results import Patched
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.patch_jobs import PatchWatch
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.start import start_jail
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content

POLICY = SandboxPolicy(preload=(), snapshots="none", tracking=False)


class Starts:
    """Counts jails, and sets an event for the first."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = threading.Event()

    def __call__(
        self, policy: SandboxPolicy, ledger: EgressLedger | None, ends_at: float | None
    ) -> Supervisor:
        self.count += 1
        supervisor = start_jail(policy, ledger, ends_at)
        self.begun.set()
        return supervisor


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
def runtime(starts: Starts) -> Iterator[HostedRuntime]:
    hosted = HostedRuntime(POLICY, NoHosts(), starts, name="slow")
    yield hosted
    hosted.close()


def never_there() -> Injection:
    """Unpickling it blocks for ever."""
    pickled = b"(cbuiltins\neval\n(V__import__('threading').Event().wait()\ntR."
    return Injection(values=Content.pack([pickled]), names=("x",))


def test_a_runtime_is_closed_while_its_jail_is_filled(runtime: HostedRuntime, starts: Starts) -> None:
    """The closing thread does not wait for code in the jail, and the filling thread gets an error."""
    runtime.noted.restore(never_there())
    failures: list[Exception] = []

    def fill() -> None:
        try:
            runtime.start()
        except CenoteError as error:
            failures.append(error)

    filling = threading.Thread(target=fill)
    filling.start()
    assert starts.begun.wait(PATIENCE)
    began = time.monotonic()
    runtime.close()
    filling.join(PATIENCE)
    assert 1 == len(failures)
    assert time.monotonic() - began < PATIENCE


def test_who_must_not_wait_starts_no_jail(runtime: HostedRuntime, starts: Starts) -> None:
    """A call that finds a running jail ends with it, even if it has ended by then."""
    runtime.start()
    with runtime.at_hand() as ready:
        assert ready
        supervisor = runtime.supervisor
        assert supervisor is not None
        runtime.jail.exchange(supervisor)  # whose end need not be reported
        supervisor.end(JailExit(reason="killed"))
        runtime.describe(heard := Heard())
    assert isinstance(heard.outcome(), Exception)
    assert 1 == starts.count
    with runtime.at_hand() as ready:
        assert not ready


def test_nobody_waits_for_who_has_the_turn(runtime: HostedRuntime) -> None:
    """Another thread may hold the turn to fill a jail."""
    runtime.start()
    found: list[bool] = []

    def look() -> None:
        with runtime.at_hand() as ready:
            found.append(ready)

    with runtime.turn, runtime.at_hand() as ready:
        assert ready
        elsewhere = threading.Thread(target=look)
        elsewhere.start()
        elsewhere.join()
    assert [False] == found


def test_a_patch_ends_with_its_runtime(runtime: HostedRuntime) -> None:
    """Even while it is planned, for which no jail is needed."""
    planning = threading.Event()

    def work(watch: PatchWatch) -> Patched:
        planning.set()
        until(watch.cancelled)
        return Patched(status="cancelled", head=0)

    heard = Heard()
    runtime.patches.apply(work, heard, RequestKey(text="patch"), lambda _: None, lambda _: nullcontext())
    assert planning.wait(PATIENCE)
    runtime.close()
    assert "cancelled" == getattr(heard.outcome(), "status", None)
