"""A jail without a control group: a thread measures its processes from outside and ends it when they use too much.

Measuring takes time, which the reactor does not have, so one watchdog thread measures all jails of a process. It
measures more often the less room there is, and at once when the kernel reports that the machine's memory is short
(PSI, since Linux 4.20).
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Final, Protocol, Self

from cenote_worker.process.threads import begin_thread
from cenote_worker.supervisor.account import tree_memory
from cenote_worker.supervisor.account.jail_account import EndJail, MeasuredUsage, MemoryLimit, UsageBaseline
from cenote_worker.supervisor.account.worker_process import WorkerProcess, anonymous_resident
from cenote_worker.supervisor.exit_reason import JailExit

STALLED: Final = 100_000
"""Microseconds per window that some task has to have waited for memory. With enough memory no task waits."""

WINDOW: Final = 2_000_000
"""Microseconds. A process without privileges may only ask for multiples of this."""

FILE: Final = "/proc/pressure/memory"


def memory_trigger(file: str = FILE) -> int | None:
    """A descriptor that polls as POLLPRI once in each window in which memory was short; None without kernel support.

    The kernel may report once at the beginning, for everything that happened before.
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


_log = logging.getLogger("cenote.watchdog")


class Watched(Protocol):
    """due: when `look` should be called next, monotonic seconds. soonest: when, if the machine runs out of memory."""

    due: float
    soonest: float

    def look(self) -> None:
        """Measures, acts, and sets `due` and `soonest`."""


class Watchdog:
    """One thread for all jails of a process: measuring takes time, which the reactor does not have."""

    def __init__(self, pressure: Callable[[], int | None] = memory_trigger) -> None:
        """pressure: gives a descriptor on which POLLPRI says that memory is short."""
        self._pressure = pressure
        self._lock = threading.Lock()
        self._watched: dict[Watched, Context] = {}
        """With the context in which each was added: lines of the log are about its jail there."""
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._looks = False
        """Whether the thread runs."""

    def add(self, one: Watched) -> None:
        """Raises UnavailableError where the machine has no thread left to measure it."""
        with self._lock:
            if not self._looks:
                begin_thread("cenote-watchdog", self._run)
                self._looks = True
                self._listen()
            self._watched[one] = copy_context()
        self.hurry()

    def remove(self, one: Watched) -> None:
        with self._lock:
            self._watched.pop(one, None)

    def hurry(self) -> None:
        """Wakes the thread, because the `due` of a watched jail is earlier now."""
        os.eventfd_write(self._wakeup, 1)

    def _listen(self) -> None:
        if (trigger := self._pressure()) is not None:
            self._poll.register(trigger, select.POLLPRI)

    def _run(self) -> None:
        while True:
            for one, context in self._wait():
                context.run(self._look_at, one)

    @staticmethod
    def _look_at(one: Watched) -> None:
        try:
            one.look()
        except Exception:  # noqa: BLE001  (one jail must not stop the watching of all others)
            _log.exception("looking at a jail failed")
            one.due = time.monotonic() + 1

    def _wait(self) -> list[tuple[Watched, Context]]:
        """Those that are due, or when memory is short those that are past `soonest`; waits until there is one."""
        short = False
        while True:
            now = time.monotonic()
            with self._lock:
                due = [
                    each
                    for each in self._watched.items()
                    if (each[0].soonest if short else each[0].due) <= now
                ]
                if due:
                    return due
                left = min((one.due for one in self._watched), default=now + 60) - now
            short = self._sleep(left)

    def _sleep(self, seconds: float) -> bool:
        """True when memory is short."""
        short = False
        for descriptor, event in self._poll.poll(max(seconds, 0) * 1000):
            if descriptor == self._wakeup:
                os.eventfd_read(self._wakeup)
            elif event & select.POLLPRI:
                short = True
            else:
                self._poll.unregister(descriptor)
        return short


SHORTEST: Final = 0.01
"""Seconds between two looks at a jail that is near its limit."""

LONGEST: Final = 0.5
"""The same for a jail that is far from its limit."""

IDLE: Final = 2.0
"""The same while no cell runs; what a cell left running in the background is still limited."""

MAPPINGS_IDLE: Final = 10.0
"""Seconds between two looks at the mappings of a jail in which no cell runs; each takes ten times as long as a usual
look. While a cell runs it is LONGEST."""

SPEED: Final = 4 * 2**30
"""Bytes per second that a jail is assumed to be able to fill: between two looks it comes half-way to its limit."""

SHARE: Final = 8
"""Measuring may take one part in this number of the time of a CPU, however many processes a jail starts."""

WAITING: Final = 4
"""A second of waiting for the CPU, or for the kernel, counts as one of measuring divided by this: a jail that keeps
all CPUs busy must not be measured less often for it, and must not slow the measuring of others."""


HIDING: Final = 2.0
"""Seconds for which a process may hide its memory: each process does while it starts, and machines are busy."""

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


class ProcessTreeAccount:
    """See JailAccount, and Watched. disk: a descriptor of the jail's disk, which this object closes; -1 for none."""

    def __init__(self, worker: WorkerProcess, limit: MemoryLimit, watchdog: Watchdog, disk: int) -> None:
        self._worker = worker
        self._limit = limit
        self._watchdog = watchdog
        self._disk = disk
        self._spared = anonymous_resident(worker.warden)
        self._spared_files = tree_memory.mapped_by(worker.warden)
        self._lent: frozenset[int] = frozenset()
        self._looking = threading.Lock()
        self._condemn: EndJail | None = None
        self._begun = UsageBaseline()
        self._peak = 0
        self._mapped_only = 0
        self._hidden: dict[int, float] = {}
        """Processes whose memory cannot be seen, and since when."""
        self._hides = False
        self._mappings_due = time.monotonic() + LONGEST
        self._idle = True
        self.due = 0.0
        self.soonest = 0.0

    @property
    def mode(self) -> str:
        return "watchdog"

    def watch(self, condemn: EndJail) -> None:
        self._condemn = condemn
        self._watchdog.add(self)

    def begin(self) -> UsageBaseline:
        self._peak = 0
        self.resume(UsageBaseline(cpu=self._worker.cpu_seconds(), written=self._worker.written()))
        return self._begun

    def resume(self, begun: UsageBaseline) -> None:
        self._begun = begun
        self._idle = False
        self._mappings_due = min(self._mappings_due, time.monotonic() + LONGEST)
        if self.due > time.monotonic() + LONGEST:
            self.due = time.monotonic() + SHORTEST
            self._watchdog.hurry()

    def spent(self) -> MeasuredUsage:
        self._idle = True
        return MeasuredUsage(
            cpu=max(self._worker.cpu_seconds() - self._begun.cpu, 0.0),
            peak_memory=max(self._peak, self._worker.resident()),
            bytes_written=max(self._worker.written() - self._begun.written, 0),
            crowded=self._limit.is_near(self._peak),
        )

    def explain(self, found: JailExit) -> JailExit:
        """The warden's guess stands: the machine's counter of such kills does not say whose they were."""
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
            condemn(JailExit(reason="memory", detail=self._limit.against(used)))
        elif self._hides:
            self._hides, self._hidden = False, {}  # the worker's successor has done nothing yet
            condemn(JailExit(reason="memory", text=_HIDES))

    def _used(self) -> int:
        return tree_memory.memory_of(
            self._worker.warden, self._disk, self._spared, self._limit.total, self._mapped_only, self._lent
        )

    def _see_mappings(self) -> None:
        with _Cost() as cost:
            self._see()
        longest = MAPPINGS_IDLE if self._idle else LONGEST
        self._mappings_due = time.monotonic() + max(longest, SHARE * cost.seconds)

    def _see(self) -> None:
        self._mapped_only = tree_memory.mapped_only(self._worker.warden, self._spared_files)
        self._look_for_hidden()

    def _look_for_hidden(self) -> None:
        """A process hides its memory for a moment as it starts. If the worker's cannot be seen, no process's can."""
        found, now = tree_memory.hidden(self._worker.warden), time.monotonic()
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
