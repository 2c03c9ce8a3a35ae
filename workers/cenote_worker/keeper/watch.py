"""Notices that the keeper of a node has ended, starts another, and has it filled again."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_security.errors import CenoteError
from cenote_worker.keeper.client import NOBODY, connect, ensure_keeper

AGAIN: Final = 1.0
LONGEST: Final = 60.0
"""Seconds until what failed is tried again, doubled each time: the machine may have memory again by then."""

_log = logging.getLogger("cenote.keeper")


class KeeperWatch:
    """One thread per process that supervises jails. Until `close`, each `refill` is called for each new keeper."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError when there is no keeper and none can be started."""
        self._folder = folder
        self._lock = threading.Lock()
        self._refills: set[Callable[[], None]] = set()
        self._closed = threading.Event()
        self._socket = self._connected()
        threading.Thread(target=self._run, name="cenote-keeper-watch", daemon=True).start()

    def add(self, refill: Callable[[], None]) -> None:
        """refill: puts everything of one runtime; called on the watch's thread, where it adds and removes nothing."""
        with self._lock:
            self._refills.add(refill)

    def remove(self, refill: Callable[[], None]) -> None:
        """Behind this call it puts nothing any more."""
        with self._lock:
            self._refills.discard(refill)

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        left: set[Callable[[], None]] = set()
        pause = AGAIN
        while True:
            if not self._ends(pause if left else None):
                left, pause = self._refilled(left), min(2 * pause, LONGEST)
                continue
            if self._closed.is_set():
                return
            try:
                self._socket = self._connected()
            except (CenoteError, OSError):
                _log.exception("there is no keeper any more, and none can be started just now")
                self._closed.wait(AGAIN)
                continue
            if self._closed.is_set():  # meanwhile: what `close` has shut down was the line to the former one
                self._socket.close()
                return
            left, pause = self._refilled(self._refills), AGAIN

    def _ends(self, patience: float | None) -> bool:
        """Whether there is no line to a keeper any more, after so many seconds at the most."""
        try:
            self._socket.settimeout(patience)
            self._socket.recv(1)  # a keeper says nothing unasked: this returns at its end
        except TimeoutError:
            return False
        except OSError:
            pass
        self._socket.close()
        return True

    def _connected(self) -> socket.socket:
        while True:
            ensure_keeper(self._folder)
            with suppress(*NOBODY):  # that one was killed already
                line = connect(self._folder)
                line.settimeout(None)
                return line

    def _refilled(self, wanted: set[Callable[[], None]]) -> set[Callable[[], None]]:
        """Those of them that could not be called to their end."""
        left = set()
        with self._lock:
            for refill in self._refills & wanted:
                try:
                    refill()
                except Exception as error:  # noqa: BLE001  (of one, and the others are to be put)
                    _log.error("a runtime could not be handed to the new keeper yet: %s", error)
                    left.add(refill)
        return left
