"""The event loop, on a thread of its own, that serves all remote runtimes of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, TypeVar

from cenote_security.errors import UnavailableError

T = TypeVar("T")


@lru_cache(maxsize=1)
def loop() -> asyncio.AbstractEventLoop:
    """Not the loop for async host functions: users' code must not delay the line. Not for a forked child either."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="cenote-remote", daemon=True).start()
    return made


def wait_for(work: Coroutine[Any, Any, T], patience: float, what: str) -> T:
    """The work's result, from another thread. Raises UnavailableError after `patience` seconds."""
    future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result(patience)
    except TimeoutError:
        if future.done():  # the work itself raised it
            raise
        raise UnavailableError(f"the platform took longer than {patience:g} s to {what}; try again") from None
    finally:
        future.cancel()
