"""Notices that the keeper of a node has ended, starts another, and has it filled again."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cenote_security.errors import CenoteError
from cenote_worker.keeper.client import NOBODY, connect, ensure_keeper

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
        while True:
            with self._socket as line, suppress(OSError):
                line.recv(1)  # a keeper says nothing unasked: this returns at its end
            if self._closed.is_set():
                return
            try:
                self._socket = self._connected()
            except (CenoteError, OSError):
                _log.exception("there is no keeper any more, and none can be started")
                return
            if self._closed.is_set():  # meanwhile: what `close` has shut down was the line to the former one
                self._socket.close()
                return
            self._refill()

    def _connected(self) -> socket.socket:
        while True:
            ensure_keeper(self._folder)
            with suppress(*NOBODY):  # that one was killed already
                line = connect(self._folder)
                line.settimeout(None)
                return line

    def _refill(self) -> None:
        with self._lock:
            for refill in self._refills:
                try:
                    refill()
                except (CenoteError, OSError):
                    _log.exception("a runtime could not be handed to the new keeper")
