"""Events of runtimes for the platform's audit log, and their buffer on the way there. No code, values or output.

They are recorded in the process where they happen, and fetched in batches by the process that stores them.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Final

from cenote_security.printable import printable
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.process.metrics import Counts, MetricsSnapshot

MAX_LINE: Final = 120
"""Characters of the first line of a cell: enough to recognise it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOrigin:
    """The runtime of an event, and what its jails may do. policy: SHA-256 of the serialised policy."""

    tenant: str
    runtime: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSummary:
    """The facts about a cell's code that are logged."""

    sha256: str
    size: int
    first_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAuditEvent:
    """A cell that has ended. token: id of the token used. at: when, in seconds since the epoch."""

    origin: EventOrigin
    token: str
    author: str
    code: CodeSummary
    at: float
    step: int
    success: bool
    error: str
    reason: str
    state: str
    wall: float
    cpu: float
    peak_memory: int
    bytes_written: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAuditEvent:
    """A jail requested a connection, or an allowed one has ended. passed: in the latter case, bytes both ways."""

    origin: EventOrigin
    decision: Decision
    passed: int | None = None


RuntimeAuditEvent = CellAuditEvent | NetworkAuditEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Events in the order of their numbers, which one source never uses twice.

    first: number of the first event; the others follow consecutively. lost: how many right before the first were
    dropped for lack of room. more: whether there are more by now. counts: all counts of this source.
    """

    source: str
    first: int
    deeds: tuple[RuntimeAuditEvent, ...]
    lost: int = 0
    more: bool = False
    counts: MetricsSnapshot = field(default_factory=MetricsSnapshot)

    def __setstate__(self, state: list[object]) -> None:
        """A pickle has only values, in order; one of an earlier version has no counts."""
        for kind, value in zip(fields(self), [*state, MetricsSnapshot()], strict=False):
            object.__setattr__(self, kind.name, value)


def code_of(text: str) -> CodeSummary:
    encoded = text.encode("utf-8", "surrogatepass")
    line = next((line for line in text[: 8 * MAX_LINE].splitlines() if line.strip()), "")
    return CodeSummary(
        sha256=hashlib.sha256(encoded).hexdigest(), size=len(encoded), first_line=printable(line[:MAX_LINE])
    )


def cell_audit_event(
    origin: EventOrigin, token: str, code: CodeSummary, at: float, result: ExecutionResult
) -> CellAuditEvent:
    error, usage = result.error, result.usage
    return CellAuditEvent(
        origin=origin,
        token=token,
        author=result.author,
        code=code,
        at=at,
        step=result.step,
        success=result.success,
        error=error.type if error else "",
        reason=(error.reason or "") if error else "",
        state=result.state,
        wall=usage.wall,
        cpu=usage.cpu,
        peak_memory=usage.peak_memory,
        bytes_written=usage.bytes_written,
        output_bytes=usage.output_bytes,
    )


ROOM: Final = 20_000
"""Events, of about a kilobyte each: some ten seconds of a busy host without a reader."""

BATCH: Final = 500


class EventBuffer:
    """The events of one process. source: its unique name, never reused. Thread-safe."""

    def __init__(self, source: str, room: int = ROOM) -> None:
        self.source = source
        self.counts = Counts()
        """Counts of the same process. They are sent with the events."""
        self._room = room
        self._lock = threading.Lock()
        self._deeds: deque[RuntimeAuditEvent] = deque()
        self._first = 1
        """The number of the first event in the buffer."""
        self._lost = 0

    def note(self, deed: RuntimeAuditEvent) -> None:
        with self._lock:
            self._deeds.append(deed)
            if len(self._deeds) > self._room:
                self._deeds.popleft()
                self._first += 1
                self._lost += 1

    def read(self, written: int = 0) -> EventBatch:
        """The next events. written: events up to this number are stored, and dropped here."""
        with self._lock:
            if written >= self._first - 1:
                self._lost = 0
            while self._deeds and self._first <= written:
                self._deeds.popleft()
                self._first += 1
            return EventBatch(
                source=self.source,
                first=self._first,
                deeds=tuple(islice(self._deeds, BATCH)),
                lost=self._lost,
                more=len(self._deeds) > BATCH,
                counts=self.counts.snapshot(),
            )
