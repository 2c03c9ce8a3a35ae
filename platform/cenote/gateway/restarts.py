"""How often a process that was killed is started again, and after how long. Decides only: no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 5
WINDOW: Final = 300.0
"""Seconds. Five failures in five minutes are no bad luck; the unit for systemd says the same."""

FIRST_PAUSE: Final = 0.1
"""Seconds before the first start; each further one of the window waits four times as long."""


@dataclass(slots=True)
class Restarts:
    """The restarts of one process."""

    _begun: deque[float] = field(default_factory=deque)

    def pause(self, now: float) -> float | None:
        """Seconds to wait before a restart that is wanted at `now`, in seconds of any clock; None for none."""
        while self._begun and self._begun[0] <= now - WINDOW:
            self._begun.popleft()
        if len(self._begun) >= MOST:
            return None
        pause: float = FIRST_PAUSE * 4 ** len(self._begun)
        self._begun.append(now)
        return pause
