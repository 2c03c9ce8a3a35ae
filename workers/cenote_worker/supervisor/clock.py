"""When a cell is interrupted and when it is killed. No clock of its own: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GRACE = 2.0
"""Seconds between an interrupt and the kill: enough for `finally` blocks, too little to hide in."""

Deed = Literal["interrupt", "kill"]


@dataclass(slots=True)
class CellClock:
    """Deadlines of one cell.

    timeout: seconds it may run, None for ever. started: when it began, on any monotonic scale.
    """

    started: float
    timeout: float | None
    grace: float = GRACE
    interrupted_at: float | None = None
    expired: bool = False
    """True from the moment the timeout, rather than somebody's wish, caused the interrupt."""

    @property
    def deadline(self) -> float | None:
        """When `due` should be asked next; None when there is nothing to wait for."""
        if self.interrupted_at is not None:
            return self.interrupted_at + self.grace
        return None if self.timeout is None else self.started + self.timeout

    def due(self, now: float) -> Deed | None:
        """What has to be done now. Being told to interrupt counts as having done so."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        if self.interrupted_at is not None:
            return "kill"
        self.interrupted_at = now
        self.expired = True
        return "interrupt"

    def interrupt(self, now: float) -> None:
        """Somebody asked for an interrupt; a second request does not extend the grace."""
        if self.interrupted_at is None:
            self.interrupted_at = now
