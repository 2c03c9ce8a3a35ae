"""Fair turns between tenants for work of which the gateway and its machines do only a little at once.

Work whose duration the code in a jail decides has its own threads, apart from all else in the gateway. Runs on one
event loop.
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
    """slots: turns at once, of all tenants together. at_once: turns of one tenant; None for all."""

    def __init__(self, slots: int, at_once: int | None = None) -> None:
        self._queue: FairQueue[int] = FairQueue(slots)
        self._at_once = at_once
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Event] = {}

    @property
    def waiting(self) -> int:
        """Number of waiting requests. From any thread."""
        return self._queue.waiting

    @asynccontextmanager
    async def turn(self, principal: Principal) -> AsyncIterator[None]:
        """Waits for a turn of the principal's tenant and holds it inside the context. Its cost is the time that it
        takes.

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
        """Gives the turn up: the waiter was cancelled, perhaps just as its turn came."""
        if started.is_set():
            self._queue.finish(ticket, 0.0)
            self._start()
        else:
            del self._waiting[ticket]
            self._queue.withdraw(ticket)


T = TypeVar("T")

AT_ONCE: Final = 8
"""Pieces of work at once; one per tenant, so that no tenant's work delays that of the others."""


class SlowWork:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cenote-slow")
        self._turns = TenantSemaphore(AT_ONCE, at_once=1)

    @property
    def waiting(self) -> int:
        """Number of pieces that wait for their turn. From any thread."""
        return self._turns.waiting

    async def carry_out(self, principal: Principal, work: Callable[[], T]) -> T:
        """Runs `work` in a turn of the principal's tenant. Work that has begun completes even if cancelled."""
        async with self._turns.turn(principal):
            return await to_its_end(asyncio.get_running_loop().run_in_executor(self._pool, work))

    def close(self) -> None:
        """Drops all work that has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def to_its_end(work: Awaitable[T]) -> T:
    """Awaits `work` even when cancelled: a thread cannot be cancelled, so its effects must not outlive the caller."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    finally:
        await asyncio.wait((doing,))
