"""Slots for teams or jobs that are worked on: limited, assigned in fair turns, and passed on after a while.

A process takes some hundred megabytes, and a job may take days. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cenote.gateway.values.fair_queue import FairQueue
from cenote_security.ids import TenantId

SLICE: Final = 60.0
"""Seconds after which work that can be interrupted makes room for waiting work."""

_BACKLOG: Final = 1_000_000
"""The number of waiting works is limited where they are created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """at_once: slots of all tenants together. of_one_tenant: slots of one tenant."""

    at_once: int
    of_one_tenant: int


PROCESS: Final = 150 * 2**20
"""Bytes of memory of one busy process, with some reserve."""

_ALWAYS: Final = 16
"""Slots of one kind on machines that have the memory for them."""

_MOST: Final = 512


def share_of(memory: int, tenants: int) -> SlotLimits:
    """The slots of one kind on the gateway's machine, or in the gateway's container.

    There are two kinds, teams and jobs. Together they take at most three quarters of a small memory, such as that of
    a pod without jails, and a quarter of a large one. memory: bytes. tenants: the number of tenants for which there
    is always room at once.
    """
    fits = memory * 3 // 4 // 2 // PROCESS
    at_once = max(min(_ALWAYS, fits), min(memory // 4 // 2 // PROCESS, _MOST), 1)
    return SlotLimits(at_once=at_once, of_one_tenant=max(at_once // tenants, min(at_once, 2)))


class WorkerSlots:
    """Slots of the works of one kind, by id."""

    def __init__(
        self, share: SlotLimits, *, slice: float = SLICE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue: FairQueue[str] = FairQueue(share.at_once, backlog=_BACKLOG)
        self._at_once = share.at_once
        self._of_one = share.of_one_tenant
        self._slice = slice
        self._clock = clock
        self._since: dict[str, float] = {}
        self._waiting: set[str] = set()

    def __contains__(self, work: str) -> bool:
        """Whether it has a slot, or waits for one."""
        return work in self._since or work in self._waiting

    @property
    def holders(self) -> list[str]:
        """Works that have a slot."""
        return list(self._since)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return len(self._since) < self._at_once

    def ask(self, work: str, tenant: TenantId) -> list[str]:
        """Requests a slot, unless it has one or waits for it. Returns all works that have one from now on."""
        if work not in self:
            self._queue.submit(work, tenant, at_once=self._of_one)
            self._waiting.add(work)
        return self._started()

    def leave(self, work: str) -> list[str]:
        """Releases a slot or a request for one. Returns all works that have a slot from now on."""
        since = self._since.pop(work, None)
        if since is not None:
            self._queue.finish(work, self._clock() - since)
        else:
            self._waiting.discard(work)
            self._queue.withdraw(work)
        return self._started()

    @property
    def overstaying(self) -> str | None:
        """The work that should make room now: the one with the oldest slot; None where none waits for it."""
        if not self._waiting or not self._since:
            return None
        work, since = min(self._since.items(), key=lambda entry: entry[1])
        return work if self._clock() - since >= self._slice else None

    def _started(self) -> list[str]:
        started = self._queue.start()
        now = self._clock()
        for work in started:
            self._waiting.discard(work)
            self._since[work] = now
        return started
