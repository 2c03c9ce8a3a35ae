"""The host line of a jail, read by its supervisor. It comes with the first host function; most jails have none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor.host_line import HostLine
from cenote_worker.supervisor.intake import PACKETS_PER_TURN
from cenote_worker.supervisor.reactor import Reactor


class HostWatch:
    """Of one jail."""

    def __init__(
        self, reactor: Reactor, lock: threading.RLock, violated: Callable[[ProtocolViolation], None]
    ) -> None:
        """violated: told when the jail has said there what it may not say."""
        self._reactor = reactor
        self._lock = lock
        self._violated = violated
        self._line: HostLine | None = None
        self._far_end: socket.socket | None = None
        """The jail's, for each process of it that has not got that: one that has come of an earlier state."""
        self._deaf = False

    @property
    def has_line(self) -> bool:
        return self._line is not None

    def far_end(self) -> socket.socket | None:
        """The jail's end of the line that there is, for whoever closes it; None where there is none."""
        with self._lock:
            return None if self._far_end is None else self._far_end.dup()

    def open(self, line: HostLine, far_end: socket.socket) -> None:
        """Host calls of the jail arrive on `line` from now on, and it ends with the jail."""
        with self._lock:
            self._line, self._far_end = line, far_end
        self._reactor.call_soon(lambda: self._reactor.watch(line.descriptor, self._on_line))

    def deafen(self) -> None:
        """Nothing is read any more: that is for a successor. Under the lock, as the next."""
        self._deaf = True

    def abandon(self) -> None:
        """Whoever made the pending calls is gone, and nobody waits for them."""
        if self._line is not None:
            self._line.abandon()

    def close(self) -> None:
        """On the reactor's thread."""
        if self._line is not None:
            self._reactor.unwatch(self._line.descriptor)
            self._line.close()
        with self._lock:
            far_end, self._far_end = self._far_end, None
        if far_end is not None:
            far_end.close()

    def _on_line(self) -> None:
        with self._lock:
            if self._line is None or self._deaf:
                return
            try:
                going_on = self._line.read(PACKETS_PER_TURN)
            except ProtocolViolation as violation:
                going_on = False
                self._violated(violation)
            if not going_on:
                self._reactor.unwatch(self._line.descriptor)
