"""One thread per process that waits for all jails at once.

A thread and not an event loop: it serves synchronous and asynchronous callers alike, goes on reading while its
caller computes, and belongs to no caller's loop.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Final

_log = logging.getLogger("cenote.reactor")

MAX_PATIENCE = 3600.0
"""Seconds of one wait. epoll takes no more than 24 days; a cell's limit may be longer."""

_AWAKE: Final = -math.inf
"""Replaces the end of a wait while there is none: everything is checked before the next wait anyway."""

STANDSTILL = 1.0
"""Seconds that a timer is late by when more than this thread has paused: the machine may have stood still."""

CATCH_UP = 5.0
"""Seconds, at most, that others get after a standstill for what they should have done before a time came."""

FEW_TIMERS = 1_000
"""So few timers are not searched for cancelled ones."""

Callback = Callable[[], None]


@dataclass(slots=True, order=True)
class Timer:
    """A callback at a time. Cancelling is setting `callback` to None."""

    when: float
    number: int
    callback: Callback | None = field(compare=False)

    def cancel(self) -> None:
        self.callback = None


class Reactor:
    """Calls back, on its own thread, when a descriptor can be read or a time has come.

    Callbacks must not block: each delays every other jail of the process.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._woken)
        self._soon: deque[Callback] = deque()
        self._timers: list[Timer] = []
        self._sleeps_until = _AWAKE
        """On the monotonic clock: when the current wait ends."""
        self._horizon = 0.0
        """When the timer that was cancelled last was due."""
        self._too_many = FEW_TIMERS
        self._resumed = self._resumes = -math.inf
        """When a standstill was seen last, and when timers that were due by then count as due."""
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name="cenote-reactor", daemon=True)
        self._thread.start()

    def call_soon(self, callback: Callback) -> None:
        """From any thread: run `callback` on the reactor's."""
        self._soon.append(_carried(callback))
        if self._sleeps_until != _AWAKE:
            os.eventfd_write(self._wakeup, 1)

    def call_at(self, when: float, callback: Callback) -> Timer:
        """From any thread: run `callback` at `when` on the monotonic clock.

        The reactor is not woken if its wait ends before that anyway: small cells have timers that never fire.
        """
        timer = Timer(max(when, time.monotonic()), next(self._numbers), _carried(callback))
        self._soon.append(partial(self._add, timer))
        if when < self._sleeps_until:
            os.eventfd_write(self._wakeup, 1)
        return timer

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Calls `callback` whenever the descriptor is readable or closed by its peer. Reactor thread only."""
        self._selector.register(descriptor, selectors.EVENT_READ, _carried(callback))

    def watch_room(self, descriptor: int, callback: Callback) -> None:
        """Calls `callback` whenever the descriptor can be written to, or never again. Reactor thread only."""
        self._selector.register(descriptor, selectors.EVENT_WRITE, _carried(callback))

    def unwatch(self, descriptor: int) -> None:
        """Reactor thread only, and before the descriptor is closed. Unknown descriptors are ignored.

        So is -1, that of a socket that was closed earlier in the same turn.
        """
        if descriptor >= 0 and descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def _add(self, timer: Timer) -> None:
        """Each cell with a time limit has a timer, and ends long before it. Cancelled timers would stay that long."""
        if len(self._timers) >= self._too_many:
            self._timers = [each for each in self._timers if each.callback is not None]
            heapq.heapify(self._timers)
            self._too_many = max(FEW_TIMERS, 2 * len(self._timers))
        heapq.heappush(self._timers, timer)

    def _run(self) -> None:
        while True:
            self._turn()

    def _turn(self) -> None:
        """A function of its own, so that its variables end with it: otherwise the last callback would live through
        the next wait, and with it a closed runtime and its record."""
        for key, _ in self._wait():
            key.data()
        while self._soon:
            self._soon.popleft()()
        while self._timers and self._has_come(self._timers[0]):
            callback = heapq.heappop(self._timers).callback
            if callback is not None:
                callback()

    def _has_come(self, timer: Timer) -> bool:
        """After a standstill, only once others had their turn: else a jail is killed for an answer that the
        standstill prevented. No timer is put off twice."""
        now, due = time.monotonic(), max(timer.when, self._resumes)
        if now - due > STANDSTILL and timer.when > self._resumed and timer.callback is not None:
            self._resumed, self._resumes = now, now + min(now - due, CATCH_UP)
            return False
        return due <= now

    def _wait(self) -> list[tuple[selectors.SelectorKey, int]]:
        self._sleeps_until = until = self._next_time()
        # Only now: a thread that adds to `_soon` later sees how long the wait is; earlier additions are seen here.
        patience = 0.0 if self._soon else until - time.monotonic()
        try:
            return self._selector.select(min(max(patience, 0.0), MAX_PATIENCE))
        finally:
            self._sleeps_until = _AWAKE

    def _next_time(self) -> float:
        """When the next wait ends: when a timer is due, or when one that was cancelled would have been."""
        while self._timers and self._timers[0].callback is None:
            self._horizon = heapq.heappop(self._timers).when
        now = time.monotonic()
        end = self._horizon if self._horizon > now else now + MAX_PATIENCE
        return min(end, max(self._timers[0].when, self._resumes)) if self._timers else end

    def _woken(self) -> None:
        os.eventfd_read(self._wakeup)


def _carried(callback: Callback) -> Callback:
    """The same in the context of the caller, whose runtime and trace log lines name."""
    return partial(copy_context().run, _guarded, callback)


def _guarded(callback: Callback) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001  (one jail's failure must not stop the reading of all others)
        _log.exception("a callback failed")
