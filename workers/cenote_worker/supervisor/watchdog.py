"""Where the machine has no control groups for us: a thread that looks at each jail from time to time."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from cenote_worker.begun_threads import begin_thread
from cenote_worker.supervisor.pressure import memory_trigger

_log = logging.getLogger("cenote.watchdog")


class Watched(Protocol):
    """due: when `look` should be called next, monotonic seconds. soonest: when, if the machine runs out of memory."""

    due: float
    soonest: float

    def look(self) -> None:
        """Measures, acts, and sets `due` and `soonest`."""


class Watchdog:
    """One thread for all jails of a process: looking takes time, which the reactor has none of."""

    def __init__(self, pressure: Callable[[], int | None] = memory_trigger) -> None:
        """pressure: gives a descriptor on which POLLPRI says that memory is short."""
        self._pressure = pressure
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._looks = False
        """Whether the thread is there."""

    def add(self, one: Watched) -> None:
        """Raises UnavailableError where the machine has no thread left to look at it."""
        with self._lock:
            if not self._looks:
                begin_thread("cenote-watchdog", self._run)
                self._looks = True
                self._listen()
            self._watched.add(one)
        self.hurry()

    def remove(self, one: Watched) -> None:
        with self._lock:
            self._watched.discard(one)

    def hurry(self) -> None:
        """Somebody's `due` has come nearer."""
        os.eventfd_write(self._wakeup, 1)

    def _listen(self) -> None:
        if (trigger := self._pressure()) is not None:
            self._poll.register(trigger, select.POLLPRI)

    def _run(self) -> None:
        while True:
            for one in self._wait():
                try:
                    one.look()
                except Exception:  # noqa: BLE001  (one jail must not stop the watching of all others)
                    _log.exception("looking at a jail failed")
                    one.due = time.monotonic() + 1

    def _wait(self) -> list[Watched]:
        """Those that are due, or when memory is short those that may be; waits until there is one."""
        short = False
        while True:
            now = time.monotonic()
            with self._lock:
                if due := [one for one in self._watched if (one.soonest if short else one.due) <= now]:
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
