"""Turns at what the machines do a few of at once, handed out by a FairQueue. On one event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cenote.gateway.fair_queue import FairQueue
from cenote.gateway.principal import Principal


class Turns:
    """slots: how many turns there are at once, of all tenants together. at_once: of one tenant; None for all."""

    def __init__(self, slots: int, at_once: int | None = None) -> None:
        self._queue: FairQueue[int] = FairQueue(slots)
        self._at_once = at_once
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Event] = {}

    @property
    def waiting(self) -> int:
        """From any thread."""
        return self._queue.waiting

    @asynccontextmanager
    async def turn(self, principal: Principal) -> AsyncIterator[None]:
        """Waits for a turn of the principal's tenant, and has it inside. What it costs is the time that it takes.

        Raises QueueFullError.
        """
        ticket, started = next(self._numbers), asyncio.Event()
        self._queue.submit(ticket, principal.tenant, weight=principal.weight, at_once=self._at_once)
        self._waiting[ticket] = started
        try:
            self._start()
            await started.wait()
        except BaseException:
            self._leave(ticket, started)
            raise
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self._queue.finish(ticket, asyncio.get_running_loop().time() - began)
            self._start()

    def _start(self) -> None:
        for ticket in self._queue.start():
            self._waiting.pop(ticket).set()

    def _leave(self, ticket: int, started: asyncio.Event) -> None:
        """Nobody waits any more; the turn may have come at that moment."""
        if started.is_set():
            self._queue.finish(ticket, 0.0)
            self._start()
        else:
            del self._waiting[ticket]
            self._queue.withdraw(ticket)
