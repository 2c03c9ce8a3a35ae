"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds that anything may take on a machine which has much else to do. Only what fails takes as long."""

PAUSE = 0.01
"""Between two looks."""


def until(condition: Callable[[], object]) -> None:
    """Looks again and again; fails when it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(PAUSE)


async def until_async(condition: Callable[[], object]) -> None:
    """`until`, for what the running event loop brings about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(PAUSE)
