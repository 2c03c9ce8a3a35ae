"""What tenants use of a machine, counted jointly by its processes: by tenant and quota.

A counter is a small file, in which each process has its own number:

    limit and one, 0 for none | number of one process | of another | ...        each of eight bytes

A process holds a lock on its number for as long as it lives. So its number counts no more when it is killed, at any
instruction, and the next process takes the place over. Locks are those of an open file (`F_OFD_SETLK`): those of a
process would be released when any descriptor of the file is closed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from cenote_worker.process.metrics import QUOTA_REFUSALS, Counts
from cenote_worker.tenancy.shared_quota import Limits, SharedQuota, exceeded

_NUMBER: Final = struct.Struct("<q")
_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""


def nothing() -> int:
    return 0


class SharedCounter:
    """Thread-safe. A count costs two system calls without a limit, and some more with one."""

    def __init__(self, quota: SharedQuota, descriptor: int, counts: Counts) -> None:
        """descriptor: of the file, taken over; this process must use it for nothing else. counts: of refusals."""
        self._quota = quota
        self._counts = counts
        self._file = descriptor
        self._lock = threading.Lock()
        self._place = 0
        """The index of this process's number; 0 until there is one."""
        self._mine = 0

    def limit(self, limit: int | None) -> None:
        """Sets the limit. Usage above a lowered limit stays, but nothing more is accepted."""
        self._write(0, 0 if limit is None else limit + 1)

    @property
    def used(self) -> int:
        """The usage of all processes."""
        with self._lock:
            return self._mine + self._others()

    def take(self, amount: int, besides: Callable[[], int] = nothing) -> None:
        """Counts something before it exists. besides: gives further usage, which is counted elsewhere.

        Raises QuotaExceededError.
        """
        with self._lock:
            if self._limit() is None:
                self._count(amount)
                return
        with self.room(amount, besides):
            self._count(amount)

    @contextmanager
    def room(self, amount: int, besides: Callable[[], int] = nothing) -> Iterator[None]:
        """A context in which no other process takes anything, so that later callers count what is stored inside.

        Raises QuotaExceededError where there is no room for the amount.
        """
        with self._lock:
            if self._limit() is None:
                yield
                return
            self._lock_at(0, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK)
            try:
                used, limit = self._mine + self._others() + besides(), self._limit()
                if limit is not None and used + amount > limit:
                    self._counts.add(QUOTA_REFUSALS, self._quota.value)
                    raise exceeded(self._quota, used, amount, limit)
                yield
            finally:
                self._lock_at(0, fcntl.F_OFD_SETLK, fcntl.F_UNLCK)

    def release(self, amount: int) -> None:
        """Returns an amount. A cell may end after `close`: then it does not count any more."""
        with self._lock:
            if self._file < 0:
                return
            self._count(-amount)

    def close(self) -> None:
        """Removes this process's usage from the count."""
        with self._lock:
            closed, self._file = self._file, -1  # another file may soon have that number
            os.close(closed)

    # -- the file --

    def _limit(self) -> int | None:
        written = os.pread(self._file, _NUMBER.size, 0)
        limit = int(_NUMBER.unpack(written)[0]) if len(written) == _NUMBER.size else 0
        return limit - 1 if limit else None

    def _others(self) -> int:
        """The sum of the numbers of all other living processes."""
        size = os.fstat(self._file).st_size
        numbers = os.pread(self._file, size - size % _NUMBER.size, 0)
        counted = (
            (index * _NUMBER.size, number) for index, (number,) in enumerate(_NUMBER.iter_unpack(numbers))
        )
        return sum(
            number
            for place, number in counted
            if place not in (0, self._place) and number and self._lives(place)
        )

    def _count(self, amount: int) -> None:
        if not self._place:
            self._place = self._free_place()
        if amount < 0:  # at once: the number that is written next is without it
            self._mine += amount
        self._write(self._place, self._mine + max(amount, 0))
        self._mine += max(amount, 0)

    def _free_place(self) -> int:
        """A place that belongs to this process from now on: it holds the lock on it."""
        place = _NUMBER.size
        while not self._claimed(place):
            place += _NUMBER.size
        return place

    def _claimed(self, place: int) -> bool:
        """Whether this process could lock that place."""
        try:
            self._lock_at(place, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
        except BlockingIOError:
            return False
        return True

    def _lives(self, place: int) -> bool:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, _NUMBER.size, 0)
        found: bytes = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)

    def _lock_at(self, place: int, command: int, kind: int) -> None:
        fcntl.fcntl(self._file, command, _FLOCK.pack(kind, os.SEEK_SET, place, _NUMBER.size, 0))

    def _write(self, place: int, number: int) -> None:
        os.pwrite(self._file, _NUMBER.pack(number), place)


class StoredBytes(Protocol):
    """Gives the bytes of a tenant's shared values on this machine, or of its runtimes' stored states."""

    def __call__(self, tenant: str, /) -> int: ...


def _none(_tenant: str) -> int:
    return 0


class MachineQuotas:
    """Thread-safe. folder: common to the processes of a machine; None for a single process.

    counts: of this process.
    """

    def __init__(self, folder: Path | None = None, counts: Counts | None = None) -> None:
        self._folder = folder
        self._counts = counts or Counts()
        self._lock = threading.Lock()
        self._tallies: dict[tuple[str, SharedQuota], SharedCounter] = {}
        self.states: StoredBytes = _none
        """Set where states of runtimes are stored; called only if there is a limit."""
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def tally(self, tenant: str, quota: SharedQuota) -> SharedCounter:
        with self._lock:
            known = self._tallies.get((tenant, quota))
            if known is None:
                known = self._tallies[tenant, quota] = SharedCounter(
                    quota, self._opened(tenant, quota), self._counts
                )
            return known

    def room(self, tenant: str, size: int, stored: StoredBytes) -> AbstractContextManager[None]:
        """A context for storing something of so many bytes. Raises QuotaExceededError."""
        tally = self.tally(tenant, SharedQuota.STORED)
        return tally.room(size, lambda: stored(tenant) + self.states(tenant))

    def limit(self, limits: Mapping[str, Limits]) -> None:
        """Replaces the limits of these tenants."""
        for tenant, own in limits.items():
            for quota in SharedQuota:
                if quota in own or self._counted(tenant, quota):
                    self.tally(tenant, quota).limit(own.get(quota))

    def close(self) -> None:
        """Removes this process's usage from the count."""
        with self._lock:
            tallies, self._tallies = list(self._tallies.values()), {}
        for tally in tallies:
            tally.close()

    def _counted(self, tenant: str, quota: SharedQuota) -> bool:
        """Whether any process here has ever counted or limited it."""
        if (tenant, quota) in self._tallies:
            return True
        return self._folder is not None and (self._folder / f"{tenant}.{quota}").exists()

    def _opened(self, tenant: str, quota: SharedQuota) -> int:
        name = f"{tenant}.{quota}"
        if self._folder is None:
            return os.memfd_create(name)
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
