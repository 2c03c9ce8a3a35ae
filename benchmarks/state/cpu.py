"""CPU seconds of everything that works for a keeper: what has come and gone meanwhile included."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.runtime.process_tree import live_descendants

Result = TypeVar("Result")
TICKS = os.sysconf("SC_CLK_TCK")
SETTLED = 0.1
PATIENCE = 5.0
"""Seconds: no process has come or gone for so long; how long that is waited for."""


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """What the work gives, its wall seconds, and the CPU seconds of this process and all below it.

    Looking through the processes takes some CPU itself, so this process's own clock is read inside of that. One that
    is still ending would take what it has used out of the sum.
    """
    _settle()
    others = _of_descendants()
    own, began = _own(), time.perf_counter()
    result = work()
    wall, own = time.perf_counter() - began, _own() - own
    return result, wall, own + _of_descendants() - others


def _settle() -> None:
    deadline = time.monotonic() + PATIENCE
    before, now = set[int](), live_descendants(os.getpid())
    while now != before and time.monotonic() < deadline:
        time.sleep(SETTLED)
        before, now = now, live_descendants(os.getpid())


def _own() -> float:
    """Of this process, and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _of_descendants() -> float:
    return sum(map(_of_one, live_descendants(os.getpid()) - {os.getpid()}))


def _of_one(pid: int) -> float:
    """With those of its children that have ended and were waited for, in steps of 10 ms; 0 for one that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / TICKS
