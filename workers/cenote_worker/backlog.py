"""What was handed over and not yet taken, counted, so that its producer waits for a slow reader."""

from __future__ import annotations

import threading


class Backlog:
    """For any threads. A producer stops above the limit, and goes on at half of it."""

    def __init__(self, limit: int) -> None:
        """limit: in the unit of the sizes, such as bytes."""
        self._limit = limit
        self._lock = threading.Lock()
        self._size = 0
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the producer waits."""
        return self._stopped

    def add(self, size: int) -> bool:
        """False when the producer has to stop. It stays stopped until `take` or `clear` says otherwise, even if it
        adds what it still had.
        """
        with self._lock:
            self._size += size
            self._stopped = self._stopped or self._size > self._limit
            return not self._stopped

    def take(self, size: int) -> bool:
        """True when a stopped producer may go on: its caller then has to say so."""
        with self._lock:
            self._size -= size
            resumed = self._stopped and self._size <= self._limit // 2
            self._stopped = self._stopped and not resumed
            return resumed

    def clear(self) -> bool:
        """All was taken, or is not wanted any more. True as for `take`."""
        with self._lock:
            self._size = 0
            stopped, self._stopped = self._stopped, False
            return stopped
