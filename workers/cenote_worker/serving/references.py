"""Sealed values that live outside any runtime: their store, owners, holders and leases."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cenote_security.errors import CenoteError, UnavailableError, UnknownReferenceError, UsageError
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import VariableInfo
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.transport.content import Content

UNCLAIMED: Final = "unclaimed"
FIRST_LEASE: Final = 60.0
"""The holder of a value that was just shared, and its lease in seconds; the first real holder replaces it."""

LONGEST_LEASE: Final = 3_600.0
"""Seconds. The hold of a holder that has died ends at the latest after this."""

MAX_VALUES: Final = 4_096
"""Values of one tenant on one machine, including copies from other machines. However small, each takes a descriptor
and some entries, and quotas count only bytes."""

MAX_HOLDERS: Final = 10_000
"""Holders of one reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOrigin:
    """Where a value was shared: the tenant, the runtime, the step before."""

    tenant: str
    runtime: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecord:
    """A description of a reference. size: bytes of the sealed value. parts: their number.

    created, expires: seconds since the epoch; the value is removed when it is not held any more, then at the latest.
    Leases use another clock, so `expires` is given to a tenth of a second.
    """

    id: str
    info: VariableInfo
    size: int
    parts: int
    holders: int
    created: float
    expires: float
    origin: ReferenceOrigin
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReference:
    """A value that has holders."""

    reference: str
    tenant: str
    holder: str


class SharedValueStore(Protocol):
    """The port to a store of shared values. Calls are thread-safe and may block.

    All raise UnknownReferenceError for an id that the tenant does not have. A lease is in seconds from now; infinite
    for holders that always release.
    """

    def put(
        self, content: Content, info: VariableInfo, origin: ReferenceOrigin, *, holder: str, lease: float
    ) -> ReferenceRecord:
        """Keeps a value. Takes the content over, even if it fails.

        Raises UnavailableError without room for it, or for one more value of its tenant; QuotaExceededError when the
        tenant's quota is used up.
        """

    def describe(self, reference: str, tenant: str) -> ReferenceRecord: ...

    def content(self, reference: str, tenant: str) -> Content:
        """The sealed value for one more user, which closes it. Nothing is copied on the same node."""

    def content_here(self, reference: str, tenant: str) -> Content | None:
        """As `content`, where that takes no more than a request to a process of this machine; otherwise None."""

    def hold(self, reference: str, tenant: str, *, holder: str, lease: float) -> ReferenceRecord:
        """Keeps the value for one more holder, or for longer: a lease never becomes shorter."""

    def release(self, reference: str, tenant: str, *, holder: str) -> None:
        """Removes a holder; the value is removed with the last. Releasing what is not held is fine."""

    def list(self, tenant: str, *, after: str, limit: int) -> list[ReferenceRecord]:
        """Up to `limit` of the tenant's references, sorted by id, those after `after`."""

    def stored(self, tenant: str) -> int:
        """Bytes of the tenant's values kept here."""


@dataclass(slots=True, eq=False)
class _Kept:
    content: Content
    info: VariableInfo
    origin: ReferenceOrigin
    created: float
    leases: dict[str, float] = field(default_factory=dict)
    used: float = 0.0
    """When a runtime used it last."""
    spilled: bool = False

    @property
    def in_memory(self) -> int:
        return 0 if self.spilled else self.content.size

    def record(self, reference: str, epoch: float) -> ReferenceRecord:
        """epoch: added to a lease's end, it gives seconds since the epoch."""
        return ReferenceRecord(
            id=reference,
            info=self.info,
            size=self.content.size,
            parts=self.content.count,
            holders=len(self.leases),
            created=self.created,
            expires=round(max(self.leases.values()) + epoch, 1),
            origin=self.origin,
        )


def check_count(kept: int) -> None:
    """Checks that a tenant with so many values here may have one more. Raises UnavailableError."""
    if kept >= MAX_VALUES:
        raise UnavailableError(
            f"{kept} shared values are kept for this tenant already; release references that are not needed"
        )


Spill = Callable[[SealedMemory], SealedMemory]
"""A copy of a value on disk. Raises UnavailableError where there is no room for it."""


class LocalReferences:
    """A SharedValueStore in the memory of this process. room: bytes of memory for all values together.

    spill: moves the least recently used values to disk when it is full; None to refuse new ones then. Memory of a
    value that a runtime uses is freed only when the runtime releases it. quotas: of each tenant.
    """

    def __init__(
        self,
        room: int,
        clock: Callable[[], float] = time.monotonic,
        quotas: MachineQuotas | None = None,
        wall: Callable[[], float] = time.time,
        *,
        spill: Spill | None = None,
    ) -> None:
        """clock: for leases; not affected by changes of the machine's time. wall: the machine's time, for people."""
        self._room = room
        self._quotas = quotas
        self._clock = clock
        self._wall = wall
        self._spill = spill
        self._moving = threading.Lock()
        """Held by the thread that makes room, which may wait for a disk. Readers do not wait for it."""
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._timer: threading.Timer | None = None
        self._due = math.inf
        """When the timer fires."""

    def put(
        self, content: Content, info: VariableInfo, origin: ReferenceOrigin, *, holder: str, lease: float
    ) -> ReferenceRecord:
        try:
            with self._quota(origin.tenant, content.size), self._moving:
                with self._lock:
                    self._sweep()
                    check_count(sum(kept.origin.tenant == origin.tenant for kept in self._kept.values()))
                placed = self._placed(content)
                with self._lock:
                    reference = f"ref_{secrets.token_hex(16)}"  # 128 bits: it cannot be guessed
                    now = self._clock()
                    leases = {holder: now + lease}
                    kept = _Kept(placed, info, origin, self._wall(), leases, now, placed is not content)
                    self._kept[reference] = kept
                    self._schedule()
                    return kept.record(reference, self._epoch)
        except CenoteError:
            content.close()
            raise

    @property
    def _epoch(self) -> float:
        """When the lease clock began, by the machine's current time."""
        return self._wall() - self._clock()

    def _quota(self, tenant: str, size: int) -> AbstractContextManager[None]:
        return nullcontext() if self._quotas is None else self._quotas.room(tenant, size, self.stored)

    def _placed(self, content: Content) -> Content:
        """The content, for which memory now has room; or a copy of it on disk.

        Raises UnavailableError where neither has room.
        """
        with self._lock:
            used = sum(kept.in_memory for kept in self._kept.values())
            lacking = used + content.size - self._room
            if lacking <= 0:
                return content
            leaving = self._leaving(lacking)
        if self._spill is None or (leaving is None and content.memory is None):
            raise UnavailableError(
                f"there is no room for {content.size} more bytes of shared values: {used} of {self._room} "
                f"are taken; release references that are not needed"
            )
        if leaving is None and content.memory is not None:
            copy = replace(content, memory=self._spill(content.memory))
            content.close()
            return copy
        for kept in leaving or ():
            self._move(kept, self._spill)
        return content

    def _leaving(self, lacking: int) -> list[_Kept] | None:
        """The values to move to disk, the least recently used first; None where all of them are not enough."""
        chosen: list[_Kept] = []
        for kept in sorted(self._kept.values(), key=lambda kept: kept.used):
            if lacking <= 0:
                break
            if not kept.spilled and kept.content.memory is not None:
                chosen.append(kept)
                lacking -= kept.content.size
        return chosen if lacking <= 0 else None

    def _move(self, kept: _Kept, spill: Spill) -> None:
        with self._lock:
            if not kept.leases:  # it was removed meanwhile
                return
            source = kept.content.duplicate()
        try:
            assert source.memory is not None
            copy = replace(source, memory=spill(source.memory))
        finally:
            source.close()
        with self._lock:
            former = copy
            if kept.leases:
                former, kept.content, kept.spilled = kept.content, copy, True
        former.close()

    def describe(self, reference: str, tenant: str) -> ReferenceRecord:
        with self._lock:
            return self._find(reference, tenant).record(reference, self._epoch)

    def content(self, reference: str, tenant: str) -> Content:
        with self._lock:
            kept = self._find(reference, tenant)
            kept.used = self._clock()
            return kept.content.duplicate()

    def content_here(self, reference: str, tenant: str) -> Content | None:
        try:
            return self.content(reference, tenant)
        except UnknownReferenceError:
            return None

    def hold(self, reference: str, tenant: str, *, holder: str, lease: float) -> ReferenceRecord:
        with self._lock:
            kept = self._find(reference, tenant)
            if holder not in kept.leases and len(kept.leases) >= MAX_HOLDERS:
                raise UsageError(f"a reference has at most {MAX_HOLDERS} holders")
            kept.leases[holder] = max(self._clock() + lease, kept.leases.get(holder, 0.0))
            self._schedule()
            return kept.record(reference, self._epoch)

    def release(self, reference: str, tenant: str, *, holder: str) -> None:
        with self._lock:
            kept = self._find(reference, tenant)
            kept.leases.pop(holder, None)
            self._sweep()

    def list(self, tenant: str, *, after: str, limit: int) -> list[ReferenceRecord]:
        with self._lock:
            self._sweep()
            ids = sorted(
                name for name, kept in self._kept.items() if kept.origin.tenant == tenant and name > after
            )
            return [self._kept[name].record(name, self._epoch) for name in ids[:limit]]

    def used(self) -> tuple[int, int]:
        """The number of values, and their bytes."""
        with self._lock:
            self._sweep()
            return len(self._kept), sum(kept.content.size for kept in self._kept.values())

    def stored(self, tenant: str) -> int:
        with self._lock:
            self._sweep()
            return sum(kept.content.size for kept in self._kept.values() if kept.origin.tenant == tenant)

    def close(self) -> None:
        """Releases everything."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            one.leases = {}
            one.content.close()

    def _find(self, reference: str, tenant: str) -> _Kept:
        self._sweep()
        kept = self._kept.get(reference)
        if kept is None or kept.origin.tenant != tenant:
            raise UnknownReferenceError(reference)
        return kept

    def _sweep(self) -> None:
        now = self._clock()
        for reference, kept in list(self._kept.items()):
            kept.leases = {holder: until for holder, until in kept.leases.items() if until > now}
            if not kept.leases:
                del self._kept[reference]
                kept.content.close()

    def _schedule(self) -> None:
        """Sets a timer, so that values are removed when their leases end even without further calls."""
        due = min((until for kept in self._kept.values() for until in kept.leases.values()), default=math.inf)
        if due >= self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, math.inf
        timer = threading.Timer(max(due - self._clock(), 0.0), self._on_time)
        timer.daemon = True
        with suppress(RuntimeError):  # the machine has no thread left: the next call sweeps, and tries again
            timer.start()
            self._timer, self._due = timer, due

    def _on_time(self) -> None:
        with self._lock:
            self._timer, self._due = None, math.inf
            self._sweep()
            self._schedule()
