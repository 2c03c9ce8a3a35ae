"""Whether two changes of a file always have two times."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_fstat = os.fstat

_REALTIME_COARSE = 5
"""The clock that file systems stamp with: it moves on once per tick of the kernel, each 1 to 10 ms."""

_TICK = 0.05
"""Seconds that are waited for a tick at most, five times the longest one."""

_TRIALS = 6

_sleep, _monotonic = time.sleep, time.monotonic
_clock_gettime_ns = time.clock_gettime_ns


def is_fine(folder: Path) -> bool:
    """Whether this file system stamps a file anew at each change that follows a look at it (Linux 6.13 and later).

    Tried, on a file that is changed at once after each look: within a tick other systems give the same time.
    """
    probe = folder / f".{os.urandom(6).hex()}"
    file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        times = []
        for _ in range(_TRIALS):
            os.pwrite(file, b"x", 0)
            times.append(_fstat(file).st_ctime_ns)
        return len(set(times)) == _TRIALS
    finally:
        os.close(file)
        probe.unlink()


def wait_until_past(ctime_ns: int) -> None:
    """Until whatever changes from now on gets a later time than this."""
    deadline = _monotonic() + _TICK
    while _clock_gettime_ns(_REALTIME_COARSE) <= ctime_ns and _monotonic() < deadline:
        _sleep(0.001)
