"""Waits for other processes, counting only time in which they could run."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final

PIECE: Final = 0.5
"""Seconds of one wait; a longer one counts as this: while a machine is suspended, no process on it can answer."""

_monotonic = time.monotonic


class PatientWait:
    """Seconds of waiting for another process of this machine, to be spent in pieces.

    A virtual machine may be suspended for half a minute. When it resumes, a deadline on the clock has passed, and a
    process that would have answered at once is taken for hung: a healthy jail would be ended.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = _monotonic) -> None:
        self._left = seconds
        self._clock = clock
        self._seen = clock()

    def piece(self) -> float:
        """Seconds to wait before the next check; 0 when the time is used up."""
        now = self._clock()
        self._left -= min(now - self._seen, PIECE)
        self._seen = now
        return max(min(self._left, PIECE), 0.0)


def is_ready(sock: socket.socket, seconds: float, event: int = select.POLLIN) -> bool:
    """Whether it is readable, or another `event` of `poll`, within so many seconds."""
    poll, wait = select.poll(), PatientWait(seconds)
    poll.register(sock, event)
    while piece := wait.piece():
        if poll.poll(piece * 1000):
            return True
    return False
