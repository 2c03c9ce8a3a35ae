"""What every jail of a runtime begins with."""

from __future__ import annotations

import threading

from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.legacy import Legacy
from cenote_worker.hosted.listeners import Keeper
from cenote_worker.supervisor.requests import Listener


class NotedInjections:
    """In the order in which they came. Safe to use from several threads: the reactor's notes, and never waits."""

    def __init__(self, legacy: Legacy) -> None:
        self._legacy = legacy
        self._lock = threading.Lock()
        self._injections: list[Injection] = []

    def add(self, injection: Injection) -> None:
        """Takes it over. Those with the same name to replace are superseded."""
        with self._lock:
            superseded = [old for old in self._injections if injection.supersedes(old)]
            self._injections = [old for old in self._injections if old not in superseded] + [injection]
            self._legacy.accept(injection, superseded)
        for old in superseded:
            self._legacy.release(old)
            old.close()

    def restore(self, injection: Injection) -> None:
        """One that another process has noted."""
        with self._lock:
            self._injections.append(injection)

    def noting(self, injection: Injection, listener: Listener) -> Keeper:
        """A listener of its request: adds it once the jail has it, lets go of it when that refuses."""
        return Keeper(listener, lambda: self.add(injection), lambda: self._legacy.release(injection))

    def all(self) -> list[Injection]:
        with self._lock:
            return list(self._injections)
