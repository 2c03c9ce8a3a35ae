"""The jails of a runtime as they are made: each with what the runtime begins with, none after its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from cenote_security.errors import RuntimeClosedError, RuntimeExpiredError
from cenote_security.policy import SandboxPolicy
from cenote_worker.counts import STARTS
from cenote_worker.egress.ledger import Ledger
from cenote_worker.environments.building import pinned
from cenote_worker.history.step import START
from cenote_worker.hosted import asks
from cenote_worker.hosted.deliveries import Deliveries
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.legacy import Legacy
from cenote_worker.hosted.listeners import Delivery
from cenote_worker.hosted.noted import NotedInjections
from cenote_worker.hosted.recorder import Recorder
from cenote_worker.hosted.refill import Refill
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.supervisor import Supervisor

_CLOSED: Final = Death(reason="closed")

StartJail = Callable[[SandboxPolicy, Ledger | None, float | None], Supervisor]
"""A fresh jail of a policy; its runtime's ledger of the network; when it is to be ended, monotonic."""


class FreshJails:
    """Of one runtime, whose turn its callers have."""

    def __init__(
        self,
        policy: SandboxPolicy,
        ledger: Ledger | None,
        start: StartJail,
        noted: NotedInjections,
        deliveries: Deliveries,
        recorder: Recorder,
        legacy: Legacy,
    ) -> None:
        self.policy = policy
        self._ledger = ledger
        self._start = start
        self._noted = noted
        self._deliveries = deliveries
        self._recorder = recorder
        self._legacy = legacy
        self._ends_at: float | None = None
        self._lock = threading.Lock()
        self._filling: Supervisor | None = None
        self._closed = False

    def close(self) -> None:
        """From any thread: no jail is filled any more. One that is being filled ends: how long that takes is in the
        hands of what is unpickled there.
        """
        with self._lock:
            self._closed, filling = True, self._filling
        if filling is not None:
            filling.end(_CLOSED)

    def end_at(self, ends_at: float | None) -> None:
        """When the runtime's time is over, monotonic, if its first jail has been started by another process."""
        self._ends_at = ends_at

    def pin(self) -> SandboxPolicy:
        """All jails from now on have the same environment, whatever its name comes to mean. Gives the policy with its
        digest. Blocks while it is built.
        """
        self.policy = pinned(self.policy)
        return self.policy

    def make(self, refill: Refill, steps: int) -> Supervisor:
        """One with the injected values, and what `refill` has. steps: how many have had a number. Blocks.

        Raises RuntimeExpiredError when the runtime's time is over, and what says why no jail can be had or filled.
        """
        noted = self._noted.all()
        with self._started() as supervisor:
            refill.fill(supervisor, lambda: self._inject(supervisor, noted))
            self._legacy.filled(refill.step, steps)
            supervisor.begins_at(refill.step)
            self._recorder.refilled([each.put_in for each in noted], refill.step)
        self._noted.sweep()
        return supervisor

    def _inject(self, supervisor: Supervisor, injections: Iterable[Injection]) -> None:
        for injection in injections:
            self._deliveries.deliver(supervisor, injection)

    def make_again(self, steps: int) -> Supervisor:
        """One with the values that the history begins with. See `make`; those that are not here are left out."""
        with self._started() as supervisor, ExitStack() as closing:
            for injection in self._noted.first():
                closing.callback(injection.close)
                self._deliveries.deliver(supervisor, injection)
                self._delete_again(supervisor, injection)
            self._legacy.filled(START, steps)
            supervisor.begins_at(START)
            self._recorder.began_again()
        return supervisor

    def _delete_again(self, supervisor: Supervisor, injection: Injection) -> None:
        """Those of its names that a client had deleted before the first step."""
        begun = self._recorder.history.begun
        for name, qualified in zip(injection.names, injection.qualified_names, strict=True):
            if qualified not in begun:
                waiting = Delivery()
                supervisor.submit(asks.delete(name, waiting, injection.seat))
                waiting.outcomes.get()  # where the jail has ended, the next request says so

    @contextmanager
    def _started(self) -> Iterator[Supervisor]:
        """It is ended if it cannot be filled."""
        began = time.monotonic()
        supervisor = self._start(self.pin(), self._ledger, self._lifetime_left())
        try:
            with self._lock:
                self._filling, closed = supervisor, self._closed
            if closed:
                raise RuntimeClosedError("this runtime was closed while its jail was started; make a new one")
            yield supervisor
            took = time.monotonic() - began
            self._recorder.counts.observe(STARTS, took, "cold" if supervisor.began_cold else "warm")
        except BaseException:
            supervisor.end(_CLOSED)
            raise
        finally:
            with self._lock:
                self._filling = None

    def _lifetime_left(self) -> float | None:
        """When the runtime's time is over, counted from its first start."""
        limit = self.policy.runtime_timeout
        if limit is None:
            return None
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + limit
        if now >= self._ends_at:
            raise RuntimeExpiredError(limit)
        return self._ends_at
