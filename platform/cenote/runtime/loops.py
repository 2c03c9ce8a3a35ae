"""An event loop on a thread of its own, for async host functions when nobody is awaiting."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import lru_cache


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's loop for such calls; started on first use, again in a forked child."""
    return _loop_of(os.getpid())


@lru_cache(maxsize=1)
def _loop_of(pid: int) -> asyncio.AbstractEventLoop:
    del pid  # only the key: a thread does not survive a fork
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="cenote-host-loop", daemon=True).start()
    return loop
