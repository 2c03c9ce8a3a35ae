"""Waiting for something to change, across threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Bell:
    """Wakes everybody who waits when something has changed.

    asyncio's own conditions belong to one loop; what a team shares is also changed by host calls, from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    def ring(self) -> None:
        """Something has changed. From any thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            with suppress(RuntimeError):  # the loop was closed; nobody waits any more
                loop.call_soon_threadsafe(_wake, future)

    async def until(self, ready: Callable[[], T | None]) -> T:
        """What `ready` gives as soon as that is not None; it is asked again after each ring."""
        loop = asyncio.get_running_loop()
        while True:
            future = loop.create_future()
            with self._lock:
                self._waiting[future] = loop
            try:
                # Asked after the future is in place: a ring in between is not missed.
                if (result := ready()) is not None:
                    return result
                await future
            finally:
                with self._lock:
                    self._waiting.pop(future, None)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
