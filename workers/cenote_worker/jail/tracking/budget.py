"""How much may be looked at: counted, not timed, so that the same step is seen in the same way each time."""

from __future__ import annotations

import time
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_BYTES_PER_SECOND = 10e9
"""What xxh3 does on memory that is not in a cache: 9.9 to 14 GB/s were measured on one core."""

_SMALL = 1 << 20

_SECONDS_PER_OBJECT = 2e-6
"""What describing a small one takes: 1 to 3 microseconds were measured."""

_PATIENCE = 3
"""How much longer than that everything may take: on a slow machine, or for objects of an unusual kind."""

_now = time.thread_time
"""Of this thread's own time, so that a busy machine makes nothing unknown that would be known on an idle one."""


TOO_LARGE: Final = "it is too large to be looked at in the time there is"
"""What is said of what was too dear."""


class TooDear(Exception):
    """It would cost more than it is worth: nothing is known of it."""


class InspectionBudget:
    """What looking at everything of one step may cost together, in seconds of an idle machine."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds
        self._patience = _PATIENCE * seconds
        self._end: float | None = None
        """Set by the first look at the clock: most steps see so little that nobody looks, which is a call of the
        system."""

    def spend(self, objects: int) -> None:
        """So many were described."""
        self._left -= objects * _SECONDS_PER_OBJECT

    def check(self) -> None:
        """Raises TooDear when all is spent."""
        if self._left < 0 or self._is_late():
            raise TooDear

    def foresee(self, objects: int) -> None:
        """So many are still to be described. Raises TooDear when that would be too many."""
        if objects * _SECONDS_PER_OBJECT > self._left:
            raise TooDear

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be hashed."""
        return size < _SMALL or (size / _BYTES_PER_SECOND <= self._left and not self._is_late())

    def allows(self, size: int) -> bool:
        """As `has_room`; then they are counted."""
        if not self.has_room(size):
            return False
        self._left -= size / _BYTES_PER_SECOND
        return True

    def _is_late(self) -> bool:
        now = _now()
        if self._end is None:
            self._end = now + self._patience
        return now > self._end
