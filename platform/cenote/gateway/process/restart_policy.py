"""Whether a platform's process hangs, and how often and after how long a killed one is restarted.

Decisions only: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

BEAT_EVERY: Final = 1.0
"""Seconds between two heartbeats of a process that serves."""

PATIENCE: Final = 30.0
"""Seconds without a heartbeat, counted twice: far more than a busy machine needs, less than clients wait."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """The heartbeats of one process, from the first one on: how long its start takes is not known.

    patience: in seconds of the clock that the caller uses.
    """

    patience: float = PATIENCE
    _heard: float | None = None
    _late: bool = False

    def hear(self, now: float) -> None:
        """A heartbeat arrived."""
        self._heard, self._late = now, False

    def end(self) -> None:
        """The process was told to end, and need send no more heartbeats."""
        self._heard = None

    def hangs(self, now: float) -> bool:
        """Call it periodically. The process gets its time twice: after a pause of the whole machine, the first period
        is over before any heartbeat could arrive.
        """
        if self._heard is None or now - self._heard <= self.patience:
            return False
        if self._late:
            return True
        self._heard, self._late = now, True
        return False


MAX_RESTARTS: Final = 5
RESTART_WINDOW: Final = 300.0
"""Seconds. Five failures in five minutes are no accident; the unit for systemd says the same."""

FIRST_PAUSE: Final = 0.1
"""Seconds before the first restart; each further one in the window waits four times as long."""


@dataclass(slots=True)
class Restarts:
    """The restarts of one process."""

    _begun: deque[float] = field(default_factory=deque)

    def pause(self, now: float) -> float | None:
        """Seconds to wait before a restart that is wanted at `now`, in seconds of any clock; None for no restart."""
        while self._begun and self._begun[0] <= now - RESTART_WINDOW:
            self._begun.popleft()
        if len(self._begun) >= MAX_RESTARTS:
            return None
        pause: float = FIRST_PAUSE * 4 ** len(self._begun)
        self._begun.append(now)
        return pause
