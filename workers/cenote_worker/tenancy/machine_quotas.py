"""The tallies of a machine, by tenant and quota."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from cenote_worker.counts import Counts
from cenote_worker.tenancy.shared_quota import Limits, SharedQuota
from cenote_worker.tenancy.tally import Tally


class Stored(Protocol):
    """Asks for the bytes that are kept of a tenant's shared values on this machine, or of its runtimes' states."""

    def __call__(self, tenant: str, /) -> int: ...


def _none(_tenant: str) -> int:
    return 0


class MachineQuotas:
    """Thread-safe. folder: where the processes of a machine meet; None for a process that is alone.

    counts: of this process.
    """

    def __init__(self, folder: Path | None = None, counts: Counts | None = None) -> None:
        self._folder = folder
        self._counts = counts or Counts()
        self._lock = threading.Lock()
        self._tallies: dict[tuple[str, SharedQuota], Tally] = {}
        self.states: Stored = _none
        """Set where states of runtimes are stored: asked only where something is limited."""
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def tally(self, tenant: str, quota: SharedQuota) -> Tally:
        with self._lock:
            known = self._tallies.get((tenant, quota))
            if known is None:
                known = self._tallies[tenant, quota] = Tally(quota, self._opened(tenant, quota), self._counts)
            return known

    def room(self, tenant: str, size: int, stored: Stored) -> AbstractContextManager[None]:
        """For something of so many bytes, which is kept inside. Raises QuotaExceededError."""
        tally = self.tally(tenant, SharedQuota.STORED)
        return tally.room(size, lambda: stored(tenant) + self.states(tenant))

    def limit(self, limits: Mapping[str, Limits]) -> None:
        """Instead of what limited these tenants before."""
        for tenant, own in limits.items():
            for quota in SharedQuota:
                if quota in own or self._counted(tenant, quota):
                    self.tally(tenant, quota).limit(own.get(quota))

    def close(self) -> None:
        """What this process has counts no more."""
        with self._lock:
            tallies, self._tallies = list(self._tallies.values()), {}
        for tally in tallies:
            tally.close()

    def _counted(self, tenant: str, quota: SharedQuota) -> bool:
        """Whether anybody here has ever counted it, or limited it."""
        if (tenant, quota) in self._tallies:
            return True
        return self._folder is not None and (self._folder / f"{tenant}.{quota}").exists()

    def _opened(self, tenant: str, quota: SharedQuota) -> int:
        name = f"{tenant}.{quota}"
        if self._folder is None:
            return os.memfd_create(name)
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
