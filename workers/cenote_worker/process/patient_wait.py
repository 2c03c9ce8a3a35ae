"""How long others are waited for: in time in which they could do something."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final

PIECE: Final = 0.5
"""Seconds of one wait, and what a longer one counts as: while a machine stands still, nobody on it can answer."""

_monotonic = time.monotonic


class PatientWait:
    """Seconds of waiting for another process of this machine, to be spent in pieces.

    A deadline on the clock is past when a machine goes on that has stood still, as virtual ones do for half a minute,
    and whoever would have answered at once is taken for hung: a jail is ended that has nothing.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = _monotonic) -> None:
        self._left = seconds
        self._clock = clock
        self._seen = clock()

    def piece(self) -> float:
        """Seconds to wait before the next look; 0 when enough were waited."""
        now = self._clock()
        self._left -= min(now - self._seen, PIECE)
        self._seen = now
        return max(min(self._left, PIECE), 0.0)


def is_ready(sock: socket.socket, seconds: float, event: int = select.POLLIN) -> bool:
    """Whether it can be read, or what else `event` of `poll` says, after so many seconds of waiting at the most."""
    poll, wait = select.poll(), PatientWait(seconds)
    poll.register(sock, event)
    while piece := wait.piece():
        if poll.poll(piece * 1000):
            return True
    return False
