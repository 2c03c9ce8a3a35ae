"""Whether a platform's process hangs, and how often and after how long a killed one is restarted.

Decides only: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

BEAT_EVERY: Final = 1.0
"""Seconds between two signs of life of a process that serves."""

PATIENCE: Final = 30.0
"""Seconds, twice, without one: far more than a busy machine takes, and less than clients wait for a line."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Of one process, which counts from its first sign of life: how long it takes to begin is not known.

    patience: in the seconds of whatever clock the times are of.
    """

    patience: float = PATIENCE
    _heard: float | None = None
    _late: bool = False

    def hear(self, now: float) -> None:
        """There was a sign of life."""
        self._heard, self._late = now, False

    def end(self) -> None:
        """It was told to end, and need give none any more."""
        self._heard = None

    def hangs(self, now: float) -> bool:
        """To be asked now and then. It is given its time twice: behind a pause of the whole machine the first is over
        before any sign could come.
        """
        if self._heard is None or now - self._heard <= self.patience:
            return False
        if self._late:
            return True
        self._heard, self._late = now, True
        return False


MAX_RESTARTS: Final = 5
RESTART_WINDOW: Final = 300.0
"""Seconds. Five failures in five minutes are no bad luck; the unit for systemd says the same."""

FIRST_PAUSE: Final = 0.1
"""Seconds before the first start; each further one of the window waits four times as long."""


@dataclass(slots=True)
class Restarts:
    """The restarts of one process."""

    _begun: deque[float] = field(default_factory=deque)

    def pause(self, now: float) -> float | None:
        """Seconds to wait before a restart that is wanted at `now`, in seconds of any clock; None for none."""
        while self._begun and self._begun[0] <= now - RESTART_WINDOW:
            self._begun.popleft()
        if len(self._begun) >= MAX_RESTARTS:
            return None
        pause: float = FIRST_PAUSE * 4 ** len(self._begun)
        self._begun.append(now)
        return pause
