"""The making of runtimes: each once, in fair turns, and to its end even when whoever asked has gone.

On one event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from cenote.gateway.principal import Principal
from cenote.gateway.registry import Registry, Wish
from cenote.gateway.runtimes import RuntimeRecord
from cenote.gateway.slow_work import to_its_end
from cenote.gateway.turns import Turns
from cenote_security.ids import RuntimeId
from cenote_security.policy import SandboxPolicy

T = TypeVar("T")

STARTS: Final = max(2, os.cpu_count() or 1)
"""Runtimes that are made at once: a start keeps a processor busy, and more of them would only take longer each."""


class Creations:
    """pool: where what blocks is done. admission: whoever has it is the only one to take names and quotas."""

    def __init__(self, registry: Registry, pool: Executor, starts: int = STARTS) -> None:
        self._registry = registry
        self._pool = pool
        self._turns = Turns(starts)
        self.admission = asyncio.Lock()
        self._admitting: set[asyncio.Task[RuntimeRecord]] = set()
        self._making: dict[RuntimeId, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> int:
        """Runtimes that wait for their turn to be made. From any thread."""
        return self._turns.waiting

    async def create(self, principal: Principal, wish: Wish) -> RuntimeRecord:
        """The runtime that was wished for, made by now. See Registry for what it raises."""
        admitting = asyncio.create_task(self._admitted(principal, wish))
        self._admitting.add(admitting)
        admitting.add_done_callback(self._was_admitted)
        record = await asyncio.shield(admitting)
        await self.made(record.id)
        return record

    async def made(self, runtime: RuntimeId) -> None:
        """Waits until nobody makes it any more. Raises what its making has failed with."""
        making = self._making.get(runtime)
        if making is not None:
            await asyncio.shield(making)

    async def close(self) -> None:
        """Waits for what is being made, and ends it: nobody was told of it. What waits for its turn is not begun."""
        await asyncio.gather(*self._admitting, return_exceptions=True)
        for making in self._making.values():
            making.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    async def _admitted(self, principal: Principal, wish: Wish) -> RuntimeRecord:
        """A task of its own: what has a name has to be made, whether somebody waits for it or not."""
        async with self.admission:  # a request that is repeated finds what the first one has begun
            record, fresh = await self._on_thread(lambda: self._registry.admit(principal, wish))
            if fresh:
                self._begin(principal, record, wish.policy)
        return record

    def _was_admitted(self, task: asyncio.Task[RuntimeRecord]) -> None:
        self._admitting.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked was told, if they are still there

    def _begin(self, principal: Principal, record: RuntimeRecord, policy: SandboxPolicy) -> None:
        task = asyncio.create_task(self._make(principal, record, policy), name=f"make {record.id}")
        self._making[record.id] = task
        task.add_done_callback(lambda done: self._ended(record.id, done))

    async def _make(self, principal: Principal, record: RuntimeRecord, policy: SandboxPolicy) -> None:
        try:
            async with self._turns.turn(principal):
                await to_its_end(self._on_thread(lambda: self._registry.make(principal, record, policy)))
        except BaseException:
            await self._on_thread(lambda: self._registry.abandon(record))
            raise

    def _ended(self, runtime: RuntimeId, task: asyncio.Task[None]) -> None:
        del self._making[runtime]
        if not task.cancelled():
            task.exception()  # whoever asked was told, if they are still there

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
