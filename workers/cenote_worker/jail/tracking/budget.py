"""A limit on inspection: counted, not timed, so that the same step is inspected in the same way each time."""

from __future__ import annotations

import time
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_BYTES_PER_SECOND = 10e9
"""Speed of xxh3 on uncached memory: 9.9 to 14 GB/s were measured on one core."""

_SMALL = 1 << 20

_SECONDS_PER_OBJECT = 2e-6
"""Time to describe a small object: 1 to 3 microseconds were measured."""

_UNCHECKED: Final = 256 * _SECONDS_PER_OBJECT
"""What is spent between two looks at the clock, which is a system call."""

_PATIENCE = 3
"""By what factor the time may be exceeded: on a slow machine, or for objects of an unusual kind."""

_now = time.thread_time
"""This thread's own CPU time, so that a busy machine makes nothing unknown that would be known on an idle one."""


TOO_LARGE: Final = "it is too large to be looked at in the time there is"
"""The reason given when the budget is exceeded."""


class TooDear(Exception):
    """Inspection would cost more than it is worth: nothing is known of the object."""


class InspectionBudget:
    """What all inspection of one step may cost together, in seconds of an idle machine."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds
        self._patience = _PATIENCE * seconds
        self._checked = seconds
        self._end: float | None = None
        """Set when the clock is first read: most steps inspect so little that it isn't, which saves a system call."""

    def spend(self, objects: int) -> None:
        """Counts objects that were described."""
        self._left -= objects * _SECONDS_PER_OBJECT

    def check(self) -> None:
        """Raises TooDear when all is spent. The clock is read again after as much work as may matter."""
        if self._left < 0:
            raise TooDear
        if self._checked - self._left >= _UNCHECKED:
            self._checked = self._left
            if self._is_late():
                raise TooDear

    def foresee(self, objects: int) -> None:
        """Checks for objects still to be described. Raises TooDear when they are too many."""
        if objects * _SECONDS_PER_OBJECT > self._left:
            raise TooDear

    def has_room(self, size: int) -> bool:
        """Whether this many bytes may be hashed."""
        return size < _SMALL or (size / _BYTES_PER_SECOND <= self._left and not self._is_late())

    def allows(self, size: int) -> bool:
        """Like `has_room`; if so, the bytes are counted."""
        if not self.has_room(size):
            return False
        self._left -= size / _BYTES_PER_SECOND
        return True

    def _is_late(self) -> bool:
        now = _now()
        if self._end is None:
            self._end = now + self._patience
        return now > self._end
