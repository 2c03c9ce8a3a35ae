"""Where the machine has no control groups for us: a thread that looks at each jail from time to time."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

_log = logging.getLogger("cenote.watchdog")


class Watched(Protocol):
    """due: when `look` should be called next, monotonic seconds."""

    due: float

    def look(self) -> None:
        """Measures, acts, and sets `due`."""


class Watchdog:
    """One thread for all jails of a process: looking takes time, which the reactor has none of."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None

    def add(self, one: Watched) -> None:
        with self._news:
            self._watched.add(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cenote-watchdog", daemon=True)
                self._thread.start()
            self._news.notify()

    def remove(self, one: Watched) -> None:
        with self._news:
            self._watched.discard(one)

    def hurry(self) -> None:
        """Somebody's `due` has come nearer."""
        with self._news:
            self._news.notify()

    def _run(self) -> None:
        while True:
            for one in self._wait():
                try:
                    one.look()
                except Exception:  # noqa: BLE001  (one jail must not stop the watching of all others)
                    _log.exception("looking at a jail failed")
                    one.due = time.monotonic() + 1

    def _wait(self) -> list[Watched]:
        """Those that are due; waits until there is one."""
        with self._news:
            while True:
                now = time.monotonic()
                if due := [one for one in self._watched if one.due <= now]:
                    return due
                self._news.wait(min((one.due for one in self._watched), default=now + 60) - now)
