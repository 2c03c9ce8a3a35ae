"""How long looking at objects may take."""

from __future__ import annotations

import time

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_BYTES_PER_SECOND = 10e9
"""What xxh3 does on memory that is not in a cache: 9.9 to 14 GB/s were measured on one core."""

_SMALL = 1 << 20

_now = time.thread_time
"""Of this thread's own time, so that a busy machine makes nothing unknown that would be known on an idle one."""


class TooDear(Exception):
    """It would take longer than it is worth: nothing is known of it."""


class Budget:
    """Seconds that looking at everything of one step may take together."""

    def __init__(self, seconds: float) -> None:
        self._end = _now() + seconds

    def check(self) -> None:
        """Raises TooDear when the time is over."""
        if _now() > self._end:
            raise TooDear

    def allows(self, size: int) -> bool:
        """Whether there is time to hash so many bytes."""
        return size < _SMALL or _now() + size / _BYTES_PER_SECOND < self._end
