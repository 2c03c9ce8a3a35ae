"""CPU time of a group of processes in nanoseconds; other load on the machine hardly affects it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from benchmarks.runtime.process_tree import all_parents, descendants, live_descendants

_SCHEDULER_CLOCK = 2


def clock_of(pid: int) -> int:
    """The kernel's number of a process's CPU clock, which includes ended threads (clock_getcpuclockid(3))."""
    return (~pid << 3) | _SCHEDULER_CLOCK


class Crew:
    """The processes that work for one sandbox: those it started, and this process, which holds its client.

    A process that starts and ends between two looks is not seen; timed cells start none.
    """

    def __init__(self, before: Iterable[int]) -> None:
        """before: descendants of this process before the sandbox was started; later ones belong to the sandbox."""
        self._roots = live_descendants(os.getpid()) - set(before)

    def look(self) -> dict[int, float]:
        """CPU seconds so far, by process. Listing processes takes milliseconds, so it precedes reading the clocks."""
        parents = all_parents()
        return _read({os.getpid()}.union(*(descendants(parents, root) for root in self._roots)))

    def since(self, earlier: dict[int, float]) -> float:
        """CPU seconds since an earlier look, without the cost of listing new processes."""
        known = _read(earlier)
        born = {pid: taken for pid, taken in self.look().items() if pid not in earlier}
        return sum(taken - earlier[pid] for pid, taken in known.items()) + sum(born.values())


def _read(pids: Iterable[int]) -> dict[int, float]:
    return {pid: taken for pid in pids if (taken := _taken(pid)) is not None}


def _taken(pid: int) -> float | None:
    try:
        return time.clock_gettime(clock_of(pid))
    except OSError:  # it has ended
        return None
