"""Fair turns between tenants at what the gateway and its machines do a few of at once.

What takes as long as the code in some jail likes has threads of its own, apart from everything else that the
gateway does. On one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from cenote.gateway.values.fair_queue import FairQueue
from cenote.gateway.values.principal import Principal


class TenantSemaphore:
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


T = TypeVar("T")

AT_ONCE: Final = 8
"""Pieces at once; one of each tenant's, so that nobody's keep those of the others waiting."""


class SlowWork:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cenote-slow")
        self._turns = TenantSemaphore(AT_ONCE, at_once=1)

    @property
    def waiting(self) -> int:
        """How many wait for their turn. From any thread."""
        return self._turns.waiting

    async def carry_out(self, principal: Principal, work: Callable[[], T]) -> T:
        """In a turn of the principal's tenant. What has begun comes to its end even when nobody waits any more."""
        async with self._turns.turn(principal):
            return await to_its_end(asyncio.get_running_loop().run_in_executor(self._pool, work))

    def close(self) -> None:
        """What has not begun is not carried out."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def to_its_end(work: Awaitable[T]) -> T:
    """A thread cannot be cancelled: whoever is, waits for it, so that nothing happens behind its back."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    finally:
        await asyncio.wait((doing,))
