"""The machine's own word that memory is short, where the kernel keeps one (PSI, since Linux 4.20)."""

from __future__ import annotations

import os
from typing import Final

STALLED: Final = 100_000
"""Microseconds, of a window, that something has to have waited for memory. A machine with enough of it has none."""

WINDOW: Final = 2_000_000
"""Microseconds. Who has no privilege may only ask for multiples of these."""

FILE: Final = "/proc/pressure/memory"


def memory_trigger(file: str = FILE) -> int | None:
    """A descriptor that polls as POLLPRI once in each window in which memory was short; None where there is none.

    The kernel may report once at the beginning, for all that has been before.
    """
    try:
        trigger = os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.write(trigger, f"some {STALLED} {WINDOW}\0".encode())
    except OSError:
        os.close(trigger)
        return None
    return trigger
