"""Ends waiting for a server that neither answers nor goes away: by a clock of ours, since the server's may stand."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_LOOKS: Final = 4
"""In which nothing may come. Counted in place of time: behind a pause of the whole machine, which is one look, a
server has had no time to answer."""


class LineWatch:
    """Of one connection at a time. Whoever waits on one that is cut finds that the other side has ended it."""

    def __init__(self, patience: float) -> None:
        """patience: seconds for one answer, and up to a quarter more: who waits must not cost anything."""
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: tuple[int, int] | None = None
        """The socket, and how many looks it has left."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="cenote-line-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def over(self, descriptor: int) -> Iterator[None]:
        """What is inside waits for the other side of this socket."""
        with self._lock:
            self._waiting = (descriptor, _LOOKS)
        try:
            yield
        finally:
            with self._lock:
                self._waiting = None

    def close(self) -> None:
        """Closing twice is fine."""
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._closed.wait(self._patience / _LOOKS):
            with self._lock:
                self._waiting = _looked_at(self._waiting)


def _looked_at(waiting: tuple[int, int] | None) -> tuple[int, int] | None:
    """None when nobody waits any more."""
    if waiting is None:
        return None
    descriptor, left = waiting
    if left:
        return descriptor, left - 1
    return None if _cut(descriptor) else waiting


def _cut(descriptor: int) -> bool:
    """False where the next look has to try again."""
    try:
        line = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # this process has no descriptor left
        return False
    with line, suppress(OSError):  # the other side has ended it just now
        line.shutdown(socket.SHUT_RDWR)
    return True
