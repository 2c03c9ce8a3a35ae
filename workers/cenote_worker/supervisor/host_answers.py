"""Answers on their way to a jail that may be slow to take them, or mean never to: nobody outside waits for it."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_worker.begun_threads import begin_thread
from cenote_worker.content import Content
from cenote_worker.frames import send_packet
from cenote_worker.patient_wait import is_ready

MAX_WAITING: Final = 10_000
"""Answers that wait for room in the socket: as many as there may be calls."""

PATIENCE: Final = 5.0
"""Seconds that a full socket may stay full before its jail counts as broken."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A packet, and what travels with it: whoever holds this owns that."""

    call_id: int
    data: bytes
    descriptors: list[int]
    content: Content | None

    @property
    def size(self) -> int:
        """Bytes that are held for it."""
        return len(self.data) + (self.content.size if self.content is not None else 0)

    def close(self) -> None:
        if self.content is not None:
            self.content.close()


class HostAnswers:
    """The sending half of a host line. From any thread, the reactor's and a client's event loop among them.

    limit: bytes that may wait. sent: called with the number of a call whose answer has left. What does not fit the
    socket waits here, and a thread sends it: one for a jail that does not read, none for any other.
    """

    def __init__(self, sock: socket.socket, limit: int, sent: Callable[[int], None]) -> None:
        self._sock = sock
        self._limit = limit
        self._sent = sent
        self._lock = threading.Lock()
        self._waiting: deque[Outgoing] = deque()
        self._size = 0
        self._sending = False
        self._open = True

    def put(self, answer: Outgoing) -> None:
        """Sends it, now or later; takes it over. Never waits for the jail."""
        with self._lock:
            if not self._open:
                answer.close()
            elif self._waiting or not self._sends(self._sock, answer):
                self._keep(answer)

    def close(self) -> None:
        """Nothing is sent any more. The socket is its owner's to close."""
        with self._lock:
            self._give_up()

    def _keep(self, answer: Outgoing) -> None:
        self._waiting.append(answer)
        self._size += answer.size
        if len(self._waiting) > MAX_WAITING or self._size > self._limit:
            self._hang_up()
        elif not self._sending:
            self._begin()

    def _begin(self) -> None:
        try:
            # The socket may be closed, and its number be another's, while the thread waits.
            own = self._sock.dup()
        except OSError:  # no descriptor is left for it
            self._hang_up()
            return
        try:
            begin_thread("cenote-answers", partial(self._send_later, own))
        except UnavailableError:
            own.close()
            self._hang_up()
        else:
            self._sending = True

    def _send_later(self, sock: socket.socket) -> None:
        with sock:
            while is_ready(sock, PATIENCE, select.POLLOUT):
                with self._lock:
                    while self._waiting and self._sends(sock, self._waiting[0]):
                        self._size -= self._waiting.popleft().size
                    if not self._waiting:
                        self._sending = False
                        return
            with self._lock:
                self._sending = False
                self._hang_up()

    def _sends(self, sock: socket.socket, answer: Outgoing) -> bool:
        """False when there is no room."""
        try:
            send_packet(sock, answer.data, answer.descriptors)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the jail is gone; its supervisor knows
        self._sent(answer.call_id)
        answer.close()
        return True

    def _hang_up(self) -> None:
        """The jail hears nothing any more, and is heard no more."""
        if self._open:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._give_up()

    def _give_up(self) -> None:
        self._open = False
        for answer in self._waiting:
            answer.close()
        self._waiting.clear()
        self._size = 0
