"""Whether a platform's process hangs, by when it was heard last. Decides only: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
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
