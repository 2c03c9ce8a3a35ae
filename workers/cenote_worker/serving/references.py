"""Values that live outside any runtime, sealed: who keeps them, for whom, for how long."""

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
"""The holder of a value that was just shared, and the seconds until somebody has to hold it, which ends that."""

LONGEST_LEASE: Final = 3_600.0
"""Seconds. A holder that has died lets go at the latest after this."""

MAX_VALUES: Final = 4_096
"""Of one tenant on one machine, copies of other machines' among them: each is a descriptor and some entries, however
small it is, and bytes are all that quotas count."""

MAX_HOLDERS: Final = 10_000
"""Of one reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOrigin:
    """Where a value was shared: whose it is, in which runtime, after which step."""

    tenant: str
    runtime: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecord:
    """What may be said of a reference. size: bytes of the sealed value, in so many parts.

    created, expires: seconds since the epoch; the value goes when it is not held any more, then at the latest.
    Leases go by another clock, so that the latter is told to a tenth of a second.
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
    """A value that somebody holds."""

    reference: str
    tenant: str
    holder: str


class SharedValueStore(Protocol):
    """The port to whoever keeps shared values. Calls are thread-safe and may block.

    All raise UnknownReferenceError for an id that the tenant does not have. A lease is in seconds from now; infinite
    for holders that are sure to release.
    """

    def put(
        self, content: Content, info: VariableInfo, origin: ReferenceOrigin, *, holder: str, lease: float
    ) -> ReferenceRecord:
        """Keeps a value. Takes the content over, whatever happens.

        Raises UnavailableError without room for it, or for one more of its tenant's; QuotaExceededError when that has
        as much as it may have.
        """

    def describe(self, reference: str, tenant: str) -> ReferenceRecord: ...

    def content(self, reference: str, tenant: str) -> Content:
        """The sealed value for one more user, who closes it. Nothing is copied on the same node."""

    def content_here(self, reference: str, tenant: str) -> Content | None:
        """As `content`, where that takes no more than a question to somebody on this machine; else None."""

    def hold(self, reference: str, tenant: str, *, holder: str, lease: float) -> ReferenceRecord:
        """Keeps the value for one more holder, or for longer: a lease never becomes shorter."""

    def release(self, reference: str, tenant: str, *, holder: str) -> None:
        """One holder less; the value goes with the last. Releasing what is not held is fine."""

    def list(self, tenant: str, *, after: str, limit: int) -> list[ReferenceRecord]:
        """Up to `limit` of the tenant's references, by id, behind `after`."""

    def stored(self, tenant: str) -> int:
        """Bytes of the tenant's values that are kept here."""


@dataclass(slots=True, eq=False)
class _Kept:
    content: Content
    info: VariableInfo
    origin: ReferenceOrigin
    created: float
    leases: dict[str, float] = field(default_factory=dict)
    used: float = 0.0
    """When a runtime needed it last."""
    spilled: bool = False

    @property
    def in_memory(self) -> int:
        return 0 if self.spilled else self.content.size

    def record(self, reference: str, epoch: float) -> ReferenceRecord:
        """epoch: what to add to a lease's end to have seconds since the epoch."""
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
    """Whether a tenant that has so many values here may have one more. Raises UnavailableError."""
    if kept >= MAX_VALUES:
        raise UnavailableError(
            f"{kept} shared values are kept for this tenant already; release references that nobody needs"
        )


Spill = Callable[[SealedMemory], SealedMemory]
"""A copy of a value on disk. Raises UnavailableError where there is no room for it."""


class LocalReferences:
    """A SharedValueStore in the memory of this process. room: bytes of memory that all values together may have.

    spill: where those go that were not used for longest when that is full; None to refuse new ones then. Of a value
    that a runtime still has, the memory stays until that lets go of it. quotas: what each tenant may have of them.
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
        """clock: of leases, which no change of the machine's time ends or prolongs. wall: that time, for people."""
        self._room = room
        self._quotas = quotas
        self._clock = clock
        self._wall = wall
        self._spill = spill
        self._moving = threading.Lock()
        """Of the thread that makes room, which may take as long as a disk does. Readers do not wait for it."""
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._timer: threading.Timer | None = None
        self._due = math.inf
        """When the timer goes off."""

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
                    reference = f"ref_{secrets.token_hex(16)}"  # 128 bits: none is met by trying
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
        """When the clock of leases began, as far as anybody's time can tell now."""
        return self._wall() - self._clock()

    def _quota(self, tenant: str, size: int) -> AbstractContextManager[None]:
        return nullcontext() if self._quotas is None else self._quotas.room(tenant, size, self.stored)

    def _placed(self, content: Content) -> Content:
        """The content, which memory has room for now; or its copy on disk, instead of it.

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
                f"are taken; release references that nobody needs"
            )
        if leaving is None and content.memory is not None:
            copy = replace(content, memory=self._spill(content.memory))
            content.close()
            return copy
        for kept in leaving or ():
            self._move(kept, self._spill)
        return content

    def _leaving(self, lacking: int) -> list[_Kept] | None:
        """Those that go to disk, the least recently used first; None where all of them are not enough."""
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
            if not kept.leases:  # it went meanwhile
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
        """How many values there are, and their bytes."""
        with self._lock:
            self._sweep()
            return len(self._kept), sum(kept.content.size for kept in self._kept.values())

    def stored(self, tenant: str) -> int:
        with self._lock:
            self._sweep()
            return sum(kept.content.size for kept in self._kept.values() if kept.origin.tenant == tenant)

    def close(self) -> None:
        """Lets go of everything."""
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
        """Sees to it that a value goes when its leases end, also when nobody asks for anything any more."""
        due = min((until for kept in self._kept.values() for until in kept.leases.values()), default=math.inf)
        if due >= self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, math.inf
        timer = threading.Timer(max(due - self._clock(), 0.0), self._on_time)
        timer.daemon = True
        with suppress(
            RuntimeError
        ):  # the machine has no thread left: whoever asks for anything sweeps, and tries again
            timer.start()
            self._timer, self._due = timer, due

    def _on_time(self) -> None:
        with self._lock:
            self._timer, self._due = None, math.inf
            self._sweep()
            self._schedule()
