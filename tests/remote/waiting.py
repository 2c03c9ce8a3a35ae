"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import threading
from collections.abc import Callable


def wait_until(condition: Callable[[], bool]) -> None:
    """Looks again and again, for ten seconds at most."""
    for _ in range(1_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come about")
