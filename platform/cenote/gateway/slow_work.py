"""What takes as long as the code in some jail likes, apart from all else that the gateway does. On one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from cenote.gateway.principal import Principal
from cenote.gateway.turns import Turns

T = TypeVar("T")

AT_ONCE: Final = 8
"""Pieces at once; one of each tenant's, so that nobody's keep those of the others waiting."""


class SlowWork:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cenote-slow")
        self._turns = Turns(AT_ONCE, at_once=1)

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
