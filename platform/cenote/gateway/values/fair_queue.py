"""Decides which tenant goes next when the machine is full: start-time fair queueing. No clock, no I/O.

P. Goyal, H. M. Vin, H. Cheng, "Start-time fair queuing: a scheduling algorithm for integrated services packet
switching networks", IEEE/ACM Transactions on Networking 5(5), 1997; for a server with several slots, W. Jin,
J. S. Chase, J. Kaur, "Interposed proportional sharing for a storage service utility", SIGMETRICS 2004.

Each tenant has a tag, the virtual time at which its next request may start. The lowest tag goes first and then
increases by cost / weight. Weighted fair queueing would have to simulate an ideal machine, and deficit round robin
needs a quantum that fits all costs. The cost of a cell is known when it is over; then its tenant's tag is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cenote.gateway.errors import QueueFullError
from cenote_security.errors import UsageError
from cenote_security.ids import TenantId

MIN_COST: Final = 0.001
"""No cost is 0: a tenant whose requests cost nothing would never have to let another one go first."""

DEFAULT_BACKLOG: Final = 1000

Ticket = TypeVar("Ticket", bound=Hashable)


@dataclass(slots=True)
class _Line(Generic[Ticket]):
    """One tenant: its waiting requests with their expected costs, and the number of its running requests."""

    tag: float = 0.0
    weight: float = 1.0
    at_once: float = math.inf
    waiting: dict[Ticket, float] = field(default_factory=dict)
    running: int = 0

    @property
    def eligible(self) -> bool:
        return bool(self.waiting) and self.running < self.at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    tenant: TenantId
    charged: float


class FairQueue(Generic[Ticket]):
    """Assigns a number of slots to tenants by their weights. Not thread-safe.

    Between two tenants that always have waiting requests with known costs, the difference of cost / weight is at most
    the largest request of each. A tenant that was away joins at the current virtual time: each other tenant goes
    before it at most once. Being away, or at its own limit, earns a tenant nothing.
    """

    def __init__(self, slots: int, *, backlog: int = DEFAULT_BACKLOG) -> None:
        """slots: how many requests run at once. backlog: how many requests of one tenant may wait."""
        if slots < 1 or backlog < 1:
            raise UsageError("a queue needs at least one slot, and room for one request to wait")
        self._slots = slots
        self._backlog = backlog
        self._now = 0.0
        self._lines: dict[TenantId, _Line[Ticket]] = {}
        self._waiting: dict[Ticket, TenantId] = {}
        self._running: dict[Ticket, _Running] = {}

    def submit(
        self,
        ticket: Ticket,
        tenant: TenantId,
        *,
        cost: float = 1.0,
        weight: float = 1.0,
        at_once: int | None = None,
    ) -> None:
        """Adds a request after the others of its tenant.

        cost: the expected cost, in any unit that is the same for all. weight: the tenant's share, relative to the
        others. at_once: how many of the tenant's may run at once, None for no limit. Raises QueueFullError;
        UsageError for a ticket that is in the queue, or numbers that are not positive.
        """
        if ticket in self._waiting or ticket in self._running:
            raise UsageError(f"{ticket!r} is in the queue already")
        if not (0 < cost < math.inf and 0 < weight < math.inf and (at_once is None or at_once >= 1)):
            raise UsageError("cost, weight and at_once are positive and finite")
        line = self._lines.setdefault(tenant, _Line())
        if len(line.waiting) >= self._backlog:
            raise QueueFullError(self._backlog)
        was_eligible = line.eligible
        line.weight, line.at_once = weight, math.inf if at_once is None else at_once
        line.waiting[ticket] = max(cost, MIN_COST)
        self._waiting[ticket] = tenant
        self._catch_up(line, was_eligible)

    def start(self) -> list[Ticket]:
        """The requests that start now, in order: call it after each `submit`, `finish` and `withdraw`."""
        started = []
        while len(self._running) < self._slots and (tenant := self._next()) is not None:
            started.append(self._start(tenant))
        return started

    def finish(self, ticket: Ticket, cost: float | None = None) -> None:
        """A request is over, in whatever way. cost: the actual cost, None if it is the expected one.

        Raises UsageError for one that does not run.
        """
        running = self._running.pop(ticket, None)
        if running is None:
            raise UsageError(f"{ticket!r} does not run")
        line = self._lines[running.tenant]
        was_eligible = line.eligible
        line.running -= 1
        if cost is not None:
            line.tag += (max(cost, MIN_COST) - running.charged) / line.weight
        self._catch_up(line, was_eligible)
        self._forget_idle(running.tenant)

    def withdraw(self, ticket: Ticket) -> bool:
        """Removes a waiting request. False when it does not wait: it runs, or is unknown."""
        tenant = self._waiting.pop(ticket, None)
        if tenant is None:
            return False
        del self._lines[tenant].waiting[ticket]
        self._forget_idle(tenant)
        return True

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def _next(self) -> TenantId | None:
        """A scan: few tenants wait at once, and a heap could not skip those at their own limit."""
        eligible = [(line.tag, tenant) for tenant, line in self._lines.items() if line.eligible]
        return min(eligible, key=lambda entry: entry[0])[1] if eligible else None

    def _start(self, tenant: TenantId) -> Ticket:
        line = self._lines[tenant]
        ticket = next(iter(line.waiting))
        cost = line.waiting.pop(ticket)
        del self._waiting[ticket]
        self._running[ticket] = _Running(tenant=tenant, charged=cost)
        self._now = max(self._now, line.tag)
        line.tag += cost / line.weight
        line.running += 1
        return ticket

    def _catch_up(self, line: _Line[Ticket], was_eligible: bool) -> None:
        """A tenant joins at the current virtual time: otherwise it could save up and shut all others out."""
        if line.eligible and not was_eligible:
            line.tag = max(line.tag, self._now)

    def _forget_idle(self, tenant: TenantId) -> None:
        """Use beyond a tenant's share is remembered until the others are level, or the machine is idle."""
        line = self._lines[tenant]
        if not line.waiting and not line.running and line.tag <= self._now:
            del self._lines[tenant]
        if not self._waiting and not self._running:
            self._lines.clear()
