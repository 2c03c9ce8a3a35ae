"""A supervisor's grip on its jail: what it kills it by, and what it must let go of when that is over."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cenote_worker.egress.service import OpenSession
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.supervisor.reactor import Reactor, Timer

_WITHOUT_PID_NAMESPACE: Final = ("landlock", "none")

_LEAVE_SECONDS: Final = 0.5
"""What a warden has to end its jail in, a hundred times what it takes; then it is killed like the rest."""


class Grip:
    """On one jail. `kill` is called under the lock, `release` on the reactor's thread, once, and nothing after it."""

    def __init__(
        self,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        egress: OpenSession | None,
        released: Callable[[], None],
    ) -> None:
        """egress: its way out, if any. released: called when the jail was let go of."""
        self._reactor = reactor
        self._lock = lock
        self._ends = ends
        self._egress = egress
        self._released = released
        self._alarm: Timer | None = None
        self._open = True

    def call_at(self, when: float | None, callback: Callable[[], None]) -> None:
        """When the jail's time is over, if it is limited: `callback` is called then, unless it was let go of."""
        self._alarm = None if when is None else self._reactor.call_at(when, callback)

    def kill(self) -> None:
        """Without a pid namespace the warden's own death ends nobody else: it is asked to end its jail first."""
        if self._ends.isolation in _WITHOUT_PID_NAMESPACE:
            with suppress(OSError):
                self._ends.control.shutdown(socket.SHUT_WR)
            self._reactor.call_at(time.monotonic() + _LEAVE_SECONDS, self._kill_warden)
            return
        self._kill_warden()

    def make_sure(self) -> None:
        """The jail says that it has ended. At `gvisor` it may be a cell that says so."""
        if self._ends.isolation not in _WITHOUT_PID_NAMESPACE:
            with suppress(OSError):
                signal.pidfd_send_signal(self._ends.pidfd, signal.SIGKILL)

    def release(self) -> None:
        """Closes the jail's ends. One that is still there goes on if somebody else holds them."""
        self._open = False
        if self._alarm is not None:
            self._alarm.cancel()
        if self._egress is not None:
            self._egress.close()
        self._ends.close()
        self._released()

    def _kill_warden(self) -> None:
        with self._lock:
            if not self._open:
                return
            try:
                signal.pidfd_send_signal(self._ends.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except OSError:
                # Not ours to signal (another uid): closing the control channel makes the warden leave.
                self._ends.control.shutdown(socket.SHUT_RDWR)
