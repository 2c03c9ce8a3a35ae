"""Threads of this process: starting one, counting all, and making a producer wait for a slow consumer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

TASKS: Final = "/proc/self/task"
"""A folder for each."""

_LINKS_OF_A_FOLDER: Final = 2
"""The link count of an empty folder; each subfolder adds one."""

_stat = os.stat


def thread_count() -> int:
    """The number of threads, of Python and of libraries. Raises OSError."""
    return _stat(TASKS).st_nlink - _LINKS_OF_A_FOLDER


def begin_thread(name: str, work: Callable[[], None]) -> None:
    """Raises UnavailableError where the machine has no room for one more; the caller must then release what waits for
    the work.
    """
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        raise UnavailableError("this machine has no thread left; nothing ran, try again") from error


class Backlog:
    """Safe to use from any thread. A producer stops above the limit, and goes on at half of it."""

    def __init__(self, limit: int) -> None:
        """limit: in the unit of the sizes, such as bytes."""
        self._limit = limit
        self._lock = threading.Lock()
        self._size = 0
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the producer is stopped."""
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
        """True when a stopped producer may go on: the caller must then notify it."""
        with self._lock:
            self._size -= size
            resumed = self._stopped and self._size <= self._limit // 2
            self._stopped = self._stopped and not resumed
            return resumed

    def clear(self) -> bool:
        """Empties the backlog: all was taken, or is not wanted any more. True as for `take`."""
        with self._lock:
            self._size = 0
            stopped, self._stopped = self._stopped, False
            return stopped
