"""Runtimes on their way to sleep, apart from all else: how long that takes is in the hands of the code in a jail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

Rest = Callable[[], None]
"""Puts one runtime to sleep if it still may be. Raises nothing."""


class Resting:
    """Those of each tenant on a thread of its own, one after the other: nobody's keep those of others awake."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def begin(self, due: Mapping[str, Sequence[Rest]]) -> None:
        """By tenant. Does not wait; those of a tenant that is still at it are left for the next time."""
        for tenant, rests in due.items():
            with self._lock:
                if tenant in self._busy:
                    continue
                self._busy.add(tenant)
            self._start(tenant, rests)

    def _start(self, tenant: str, rests: Sequence[Rest]) -> None:
        thread = threading.Thread(
            target=self._carry_out, args=(tenant, rests), name="cenote-resting", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the machine has no room for one more thread just now
            self._over(tenant)

    def _carry_out(self, tenant: str, rests: Sequence[Rest]) -> None:
        try:
            for rest in rests:
                rest()
        finally:
            self._over(tenant)

    def _over(self, tenant: str) -> None:
        with self._lock:
            self._busy.discard(tenant)
