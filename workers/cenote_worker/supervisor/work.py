"""What is asked of one jail: the request that runs, those that wait for their turn, what was printed in between."""

from __future__ import annotations

from collections import deque

from cenote_worker.supervisor.record import BACKGROUND, Printed, Record
from cenote_worker.supervisor.requests import JailRequest


class Work:
    """Of one supervisor, used under its lock."""

    def __init__(self) -> None:
        self.running: Record | None = None
        """From when it is about to be sent until it has an outcome."""
        self.waiting: deque[JailRequest] = deque()
        """See `waiting.enqueue` for their order."""
        self.background = Printed(BACKGROUND)
        """What came while nothing ran: the next cell's result tells it."""

    @property
    def is_there(self) -> bool:
        """Whether anything is to be done, or under way."""
        return self.running is not None or bool(self.waiting)

    def take_running(self) -> Record:
        """It runs no more: whoever takes it gives it an outcome."""
        running, self.running = self.running, None
        assert running is not None, "nothing was asked that this could be the answer to"
        running.rearm(None)
        return running

    def take_waiting(self) -> list[JailRequest]:
        """They will not be sent."""
        waiting, self.waiting = list(self.waiting), deque()
        return waiting

    def take_background(self) -> Printed:
        taken, self.background = self.background, Printed(BACKGROUND)
        return taken
