"""The making of branches: each fork once, in turns of their own, and to its end even when whoever asked has gone.

Apart from other creations: how long a fork takes is in the hands of the code that runs in its jail.
On one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from cenote.gateway.branches import Branches, Fork, ForkWish
from cenote.gateway.principal import Principal
from cenote.gateway.runtimes import RuntimeRecord
from cenote.gateway.slow_work import SlowWork
from cenote.gateway.turns import Turns

T = TypeVar("T")

LEAVE_SECONDS: Final = 5.0
"""For forks to come to an end when the platform does."""


class Forks:
    """admission: of all runtimes, see Creations. pool: where what blocks is done that no jail can delay. slow: where
    all else is.
    """

    def __init__(self, branches: Branches, admission: asyncio.Lock, pool: Executor, slow: SlowWork) -> None:
        self._branches = branches
        self._admission = admission
        self._pool = pool
        self._slow = slow
        self._admissions = Turns(1)
        """To wait for the admission, which takes a second for hundreds of branches."""
        self._admitting: set[asyncio.Task[Fork]] = set()
        self._making: dict[str, asyncio.Task[None]] = {}

    @property
    def waiting(self) -> int:
        """Forks that wait to be admitted. From any thread."""
        return self._admissions.waiting

    async def fork(self, principal: Principal, wish: ForkWish) -> tuple[RuntimeRecord, ...]:
        """The branches, made by now. See Branches.admit for what it raises, and Nodes.fork."""
        admitting = asyncio.create_task(self._admitted(principal, wish))
        self._admitting.add(admitting)
        admitting.add_done_callback(self._was_admitted)
        fork = await asyncio.shield(admitting)
        making = self._making.get(_key(fork))
        if making is not None:
            await asyncio.shield(making)
        return fork.branches

    async def close(self) -> None:
        """Takes back what is being made: nobody was told of it. What takes long is taken back at the next start."""
        await asyncio.gather(*self._admitting, return_exceptions=True)
        for making in self._making.values():
            making.cancel()
        if self._making:
            await asyncio.wait(self._making.values(), timeout=LEAVE_SECONDS)

    async def _admitted(self, principal: Principal, wish: ForkWish) -> Fork:
        # One at a time: a request that is repeated finds what the first one has begun.
        async with self._admissions.turn(principal), self._admission:
            fork = await _on(self._pool, lambda: self._branches.admit(principal, wish))
            if fork.fresh:
                self._begin(principal, fork)
        return fork

    def _begin(self, principal: Principal, fork: Fork) -> None:
        task = asyncio.create_task(self._make(principal, fork), name=f"fork {fork.parent.id}")
        self._making[_key(fork)] = task
        task.add_done_callback(lambda done: self._ended(fork, done))

    async def _make(self, principal: Principal, fork: Fork) -> None:
        try:
            await self._slow.carry_out(principal, lambda: self._branches.make(principal, fork))
        except BaseException:
            await _on(self._pool, lambda: self._branches.abandon(fork))
            raise

    def _was_admitted(self, task: asyncio.Task[Fork]) -> None:
        self._admitting.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked was told, if they are still there

    def _ended(self, fork: Fork, task: asyncio.Task[None]) -> None:
        del self._making[_key(fork)]
        if not task.cancelled():
            task.exception()  # whoever asked was told, if they are still there


def _key(fork: Fork) -> str:
    return f"{fork.parent.tenant}/{fork.id}"


async def _on(pool: Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)
