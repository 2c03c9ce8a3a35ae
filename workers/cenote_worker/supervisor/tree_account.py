"""A jail without a control group: its processes are measured from outside, and it is ended when they use too much."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from cenote_worker.supervisor import tree
from cenote_worker.supervisor.account import Baseline, Condemn, MemoryLimit, Spent
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.watchdog import Watchdog
from cenote_worker.supervisor.worker_process import WorkerProcess, anonymous_resident

SHORTEST: Final = 0.01
"""Seconds between two looks at a jail that is near its limit."""

LONGEST: Final = 0.5
"""The same for one that is far from it."""

IDLE: Final = 2.0
"""The same while no cell runs; what a cell left running in the background is still bounded."""

MAPPINGS_IDLE: Final = 10.0
"""Seconds between two looks at the mappings of a jail in which no cell runs, of which each takes ten times a usual
look. While one runs it is LONGEST."""

SPEED: Final = 4 * 2**30
"""Bytes per second that a jail is taken to be able to fill: between two looks it comes half-way to its limit."""

SHARE: Final = 8
"""Looking may take one part in so many of the time of a CPU, however many processes a jail starts."""

WAITING: Final = 4
"""A second of waiting for the CPU, or for the kernel, counts as one of looking divided by this: a jail that keeps all
CPUs busy must not be looked at the more rarely for it, nor the others because of it."""


HIDING: Final = 2.0
"""Seconds for which a process may hide what it holds: each does as it starts, and machines are busy."""

_HIDES: Final = (
    "a process of the runtime ran a program that its user may not read, which hides its memory from the watchdog, "
    "and was killed"
)


def pause(room: int, took: float, *, idle: bool) -> float:
    """Seconds until the next look. room: bytes left to the limit. took: seconds that the last look needed. Pure."""
    wanted = IDLE if idle else min(max(room / 2 / SPEED, SHORTEST), LONGEST)
    return max(wanted, SHARE * took)


class _Cost:
    """seconds: what the work inside took."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._started = time.monotonic(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        began, used = self._started
        self.seconds = max(time.thread_time() - used, (time.monotonic() - began) / WAITING)


class TreeAccount:
    """See Account, and Watched. disk: a descriptor of the jail's disk, this object's to close; -1 for none."""

    def __init__(self, worker: WorkerProcess, limit: MemoryLimit, watchdog: Watchdog, disk: int) -> None:
        self._worker = worker
        self._limit = limit
        self._watchdog = watchdog
        self._disk = disk
        self._spared = anonymous_resident(worker.warden)
        self._spared_files = tree.mapped_by(worker.warden)
        self._lent: frozenset[int] = frozenset()
        self._looking = threading.Lock()
        self._condemn: Condemn | None = None
        self._begun = Baseline()
        self._peak = 0
        self._mapped_only = 0
        self._hidden: dict[int, float] = {}
        """Processes of which nothing can be seen, and since when."""
        self._hides = False
        self._mappings_due = time.monotonic() + LONGEST
        self._idle = True
        self.due = 0.0
        self.soonest = 0.0

    @property
    def mode(self) -> str:
        return "watchdog"

    def watch(self, condemn: Condemn) -> None:
        self._condemn = condemn
        self._watchdog.add(self)

    def begin(self) -> Baseline:
        self._peak = 0
        self.resume(Baseline(cpu=self._worker.cpu_seconds(), written=self._worker.written()))
        return self._begun

    def resume(self, begun: Baseline) -> None:
        self._begun = begun
        self._idle = False
        self._mappings_due = min(self._mappings_due, time.monotonic() + LONGEST)
        if self.due > time.monotonic() + LONGEST:
            self.due = time.monotonic() + SHORTEST
            self._watchdog.hurry()

    def spent(self) -> Spent:
        self._idle = True
        return Spent(
            cpu=max(self._worker.cpu_seconds() - self._begun.cpu, 0.0),
            peak_memory=max(self._peak, self._worker.resident()),
            bytes_written=max(self._worker.written() - self._begun.written, 0),
            crowded=self._limit.is_near(self._peak),
        )

    def explain(self, found: Death) -> Death:
        """The warden's guess stands: the machine's counter of such kills has risen, whosever they were."""
        return found

    def look(self) -> None:
        """See Watched."""
        with self._looking:
            condemn = self._condemn
            if self._worker.warden < 0 or condemn is None:
                return
            if self._mappings_due <= time.monotonic():
                self._see_mappings()
            with _Cost() as cost:
                used = self._used()
            now = time.monotonic()
            if used > self._limit.total and self._mapped_only:
                self._see_mappings()
                used = self._used()
        self._peak = max(self._peak, used)
        self.due = now + pause(self._limit.total - used, cost.seconds, idle=self._idle)
        self.soonest = now + SHARE * cost.seconds
        if used > self._limit.total:
            condemn(Death(reason="memory", detail=self._limit.against(used)))
        elif self._hides:
            self._hides, self._hidden = False, {}  # what follows the worker has done nothing yet
            condemn(Death(reason="memory", text=_HIDES))

    def _used(self) -> int:
        return tree.memory_of(
            self._worker.warden, self._disk, self._spared, self._limit.total, self._mapped_only, self._lent
        )

    def _see_mappings(self) -> None:
        with _Cost() as cost:
            self._see()
        longest = MAPPINGS_IDLE if self._idle else LONGEST
        self._mappings_due = time.monotonic() + max(longest, SHARE * cost.seconds)

    def _see(self) -> None:
        self._mapped_only = tree.mapped_only(self._worker.warden, self._spared_files)
        self._look_for_hidden()

    def _look_for_hidden(self) -> None:
        """Each process hides what it holds for a moment as it starts. Who cannot see the worker's sees none."""
        found, now = tree.hidden(self._worker.warden), time.monotonic()
        if self._worker.pid in found:
            found = frozenset()
        self._hidden = {pid: self._hidden.get(pid, now) for pid in found}
        self._hides = any(since < now - HIDING for since in self._hidden.values())

    @contextmanager
    def sparing(self, inode: int) -> Iterator[None]:
        self._lent |= {inode}
        try:
            yield
        finally:
            self._lent -= {inode}

    def follow(self, pid: int) -> None:
        self._worker.follow(pid)

    def close(self) -> None:
        self._watchdog.remove(self)
        with self._looking:
            self._condemn = None
            self._worker.close()
            if self._disk >= 0:
                os.close(self._disk)
                self._disk = -1

    def let_go(self) -> None:
        self.close()
