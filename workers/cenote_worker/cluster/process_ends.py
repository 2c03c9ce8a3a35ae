"""Processes of others that are killed by others, and when they are gone in truth."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def awaited_end(pids: Collection[int], patience: float) -> Iterator[None]:
    """Have them killed inside. Behind it they are gone, or those many seconds have passed."""
    with ExitStack() as opened:
        waited_for = []
        for pid in pids:
            with suppress(ProcessLookupError):  # it is gone already
                waited_for.append(os.pidfd_open(pid))  # now: its number may be another's later
                opened.callback(os.close, waited_for[-1])
        yield
        until = time.monotonic() + patience
        for process in waited_for:
            select.select([process], [], [], max(until - time.monotonic(), 0.0))
