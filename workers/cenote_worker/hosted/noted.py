"""What every jail of a runtime begins with."""

from __future__ import annotations

import threading
from typing import Final

from cenote_security.errors import RejectedError
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.legacy import NO_LEGACY, Legacy
from cenote_worker.hosted.listeners import Keeper
from cenote_worker.supervisor.requests import Listener

MAX_INJECTIONS: Final = 5_000
"""Of one runtime of a platform: each is an entry of its node's keeper, which has 100,000 for all."""

MAX_TIMES: Final = 4
"""All that is put into one may take so many times its memory: it is mapped, and need not be read, but the machine has
it, and no quota counts it. One value may take half of it.
"""


class NotedInjections:
    """In the order in which they came. Safe to use from several threads: the reactor's notes, and never waits."""

    def __init__(self, legacy: Legacy) -> None:
        self._legacy = legacy
        self._lock = threading.Lock()
        self._injections: list[Injection] = []

    def check_room(self, injection: Injection, memory: int) -> None:
        """Whether it can be noted beside the others. memory: bytes a runtime may have. Raises RejectedError."""
        if self._legacy is NO_LEGACY:
            return  # a process of its own, which knows what it has
        most = MAX_TIMES * memory
        stay = [old for old in self.all() if not injection.supersedes(old)]
        if sum(old.size for old in stay) + injection.size > most:
            raise RejectedError(
                f"all that is put into a runtime is kept for its later jails, {most} bytes at the most; replace "
                f"values, give the runtime more memory, or bring them as files"
            )
        if len(stay) >= MAX_INJECTIONS:
            raise RejectedError(
                f"at most {MAX_INJECTIONS} injections are kept; put in several values at once"
            )

    def add(self, injection: Injection) -> None:
        """Takes it over. Those with the same name to replace are superseded."""
        with self._lock:
            superseded = [old for old in self._injections if injection.supersedes(old)]
            self._injections = [old for old in self._injections if old not in superseded] + [injection]
            self._legacy.accept(injection, superseded)
        for old in superseded:
            self._let_go(old)

    def _let_go(self, injection: Injection) -> None:
        self._legacy.release(injection)
        injection.close()

    def restore(self, injection: Injection) -> None:
        """One that another process has noted."""
        with self._lock:
            self._injections.append(injection)

    def noting(self, injection: Injection, listener: Listener) -> Keeper:
        """A listener of its request: adds it once the jail has it, closes it when that refuses."""
        return Keeper(listener, lambda: self.add(injection), lambda: self._let_go(injection))

    def all(self) -> list[Injection]:
        with self._lock:
            return list(self._injections)
