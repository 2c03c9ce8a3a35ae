"""Interrupts of the running request: because somebody asks for one, or its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.chronicle import Chronicle
from cenote_worker.supervisor.control import ControlLine
from cenote_worker.supervisor.farewell import ignored
from cenote_worker.supervisor.parking import Parking
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.supervisor.requests import Seat
from cenote_worker.supervisor.work import Work

SUCCESSOR_SECONDS = 20.0
"""What a copy has to answer in for a worker that was killed for its time: as long as a jail has to start."""


class Interrupts:
    """Of one jail, used under its lock. What each comes to its clock knows; what goes on behind one is struck."""

    def __init__(
        self,
        work: Work,
        *,
        reactor: Reactor,
        lock: threading.RLock,
        control: ControlLine,
        chronicle: Chronicle,
        parking: Parking,
        strike: Callable[[Death], None],
    ) -> None:
        self._work = work
        self._reactor = reactor
        self._lock = lock
        self._control = control
        self._chronicle = chronicle
        self._parking = parking
        self._strike = strike
        self._sent = False  # one was, since the last cell was

    def take_up(self) -> None:
        """Goes on behind another supervisor, of whose interrupts nobody knows."""
        self._sent = True

    def were_sent(self) -> bool:
        """Whether one was since this was last asked: it may yet come, and hit what is sent now."""
        sent, self._sent = self._sent, False
        return sent

    def interrupt(self, seat: Seat | None) -> bool:
        """See `Supervisor.interrupt`."""
        running = self._work.running
        if running is None:
            return self._parking.interrupt_first(self._work.waiting, seat)
        if seat not in (None, running.request.seat):
            return False
        running.clock.interrupt(now := time.monotonic())
        self._chronicle.interrupted(now, expired=False)
        self._send()
        self.arm()
        return True

    def arm(self) -> None:
        """For when the clock of the running request next wants something done."""
        running = self._work.running
        if running is None:
            return
        deadline = running.clock.deadline
        running.rearm(None if deadline is None else self._reactor.call_at(deadline, self._on_deadline))

    def _send(self) -> None:
        self._sent = True
        self._control.interrupt()

    def _on_deadline(self) -> None:
        with self._lock:
            running = self._work.running
            if running is None:
                return
            clock = running.clock
            match clock.due(time.monotonic()):
                case "interrupt":
                    self._chronicle.interrupted(time.monotonic(), expired=True)
                    self._send()
                case "kill":
                    now = time.monotonic()
                    self._strike(ignored(running.request, clock, now))
                    # The request is still open: what follows the worker has to answer in its place.
                    running.rearm(self._reactor.call_at(now + SUCCESSOR_SECONDS, self._on_deadline))
                    return
            self.arm()
