"""Whether an actor hangs, by when it was asked and what came. Decides only: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cenote_worker.cluster.ray_calls import LOOK_PATIENCE

COMING_PATIENCE: Final = 120.0
"""Seconds for an actor that is being started to answer for the first time: on a busy machine it imports for long."""

Finding = Literal["waits", "ask", "hangs"]


@dataclass(slots=True)
class Pulse:
    """Of one actor, which Ray starts again when it ends. asked: when it was asked what it has not answered yet.

    is_up: whether it has answered since it was started. is_late: whether it has let the time for an answer pass once.
    """

    asked: float
    is_up: bool = False
    is_late: bool = False

    def answered(self, now: float) -> None:
        """And is asked the next time."""
        self.asked, self.is_up, self.is_late = now, True, False

    def ended(self, now: float) -> None:
        """Its process has; another one is on its way."""
        self.asked, self.is_up, self.is_late = now, False, False

    def look(self, now: float) -> Finding:
        """It has not answered. It is asked again once: behind a pause of the whole machine the time for an answer is
        over before that could come.
        """
        if now - self.asked <= (LOOK_PATIENCE if self.is_up else COMING_PATIENCE):
            return "waits"
        if self.is_late:
            return "hangs"
        self.asked, self.is_late = now, True
        return "ask"
