"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that anything may take on a machine which has much else to do. Only what fails takes as long."""

STANDSTILL = 5.0
"""Seconds between two looks that count: where it is more, the whole machine stood still, and nothing could come."""


def until(condition: Callable[[], T]) -> T:
    """What was seen when it came: a second look may see something else. Looks again and again; fails when it does
    not come."""
    for pause in _pauses():
        if seen := condition():
            return seen
        time.sleep(pause)
    raise AssertionError("it did not come")


async def until_async(condition: Callable[[], object]) -> None:
    """`until`, for what the running event loop brings about."""
    for pause in _pauses():
        if condition():
            return
        await asyncio.sleep(pause)
    raise AssertionError("it did not come")


def _pauses() -> Iterator[float]:
    """Longer and longer ones: what is soon there is seen soon, and what takes long is not slowed down by looking."""
    left, pause, looked = PATIENCE, 0.002, time.monotonic()
    while left > 0:
        yield pause
        pause = min(1.5 * pause, 0.1)
        before, looked = looked, time.monotonic()
        left -= min(looked - before, STANDSTILL)
