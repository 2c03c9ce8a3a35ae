"""Waiting for the actions of other threads and processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that any event may take on a busy machine. Only a failure takes this long."""

STANDSTILL = 5.0
"""Seconds between two counted checks: if more pass, the whole machine stood still, and nothing could happen."""


def until(condition: Callable[[], T]) -> T:
    """Checks repeatedly and returns the value of the check that succeeded, since a second check may differ; fails
    when none does."""
    for pause in _pauses():
        if seen := condition():
            return seen
        time.sleep(pause)
    raise AssertionError("it did not come")


async def until_async(condition: Callable[[], object]) -> None:
    """`until`, for the actions of the running event loop."""
    for pause in _pauses():
        if condition():
            return
        await asyncio.sleep(pause)
    raise AssertionError("it did not come")


def _pauses() -> Iterator[float]:
    """Growing pauses: a fast event is seen soon, and a slow one is not delayed by checks."""
    left, pause, looked = PATIENCE, 0.002, time.monotonic()
    while left > 0:
        yield pause
        pause = min(1.5 * pause, 0.1)
        before, looked = looked, time.monotonic()
        left -= min(looked - before, STANDSTILL)
