"""The jails of a runtime as they are made: each with what the runtime begins with, none after its time."""

from __future__ import annotations

import time
from collections.abc import Callable

from cenote_security.errors import RuntimeExpiredError
from cenote_security.policy import SandboxPolicy
from cenote_worker.egress.ledger import Ledger
from cenote_worker.history.step import START
from cenote_worker.hosted.deliveries import Deliveries
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.legacy import Legacy
from cenote_worker.hosted.noted import NotedInjections
from cenote_worker.hosted.recorder import Recorder
from cenote_worker.hosted.refill import Refill
from cenote_worker.hosted.unlike_starts import otherwise
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.supervisor import Supervisor

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
        self._policy = policy
        self._ledger = ledger
        self._start = start
        self._noted = noted
        self._deliveries = deliveries
        self._recorder = recorder
        self._legacy = legacy
        self._ends_at: float | None = None
        self._begun: list[Injection] = []
        """What the jail that was filled last had then, if nothing else."""

    def end_at(self, ends_at: float | None) -> None:
        """When the runtime's time is over, monotonic, if its first jail has been started by another process."""
        self._ends_at = ends_at

    def make(self, refill: Refill, steps: int) -> Supervisor:
        """One with the injected values, and what `refill` has. steps: how many have had a number. Blocks.

        Raises RuntimeExpiredError when the runtime's time is over, and what says why no jail can be had or filled.
        """
        supervisor = self._start(self._policy, self._ledger, self._lifetime_left())
        try:
            for injection in self._noted.all():
                self._deliveries.deliver(supervisor, injection)
            refill.fill(supervisor)
            self._legacy.filled(refill.step, steps)
            self._begun = self._noted.all() if refill.step == START else []
            supervisor.begins_at(refill.step)
            self._recorder.refilled(self._begins_with(), refill.step)
        except BaseException:
            supervisor.end(Death(reason="closed"))
            raise
        return supervisor

    @property
    def otherwise(self) -> str:
        """Why the next one does not begin with the values that the history does; empty if it does."""
        return otherwise(self._recorder.history, self._noted.all(), self._begun)

    def _begins_with(self) -> list[str]:
        """Names that each jail begins with; private ones behind their author's."""
        names: dict[str, None] = {}
        for injection in self._noted.all():
            names.update(dict.fromkeys(injection.qualified_names))
        return list(names)

    def _lifetime_left(self) -> float | None:
        """When the runtime's time is over, counted from its first start."""
        limit = self._policy.runtime_timeout
        if limit is None:
            return None
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + limit
        if now >= self._ends_at:
            raise RuntimeExpiredError(limit)
        return self._ends_at
