"""A step as users see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cenote_worker.history.dependencies import located, looked_at
from cenote_worker.history.step import HostCallRecord, StepKind, StepOutcome, StepRecord, StepStatus
from cenote_worker.results import ErrorInfo, MimeBundle
from cenote_worker.trace import ANYTHING, Location, key_of, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a runtime.

    number: never used twice. parent: the step in whose state it began, 0 for the start. author: empty for the
    runtime's owner. cause: the model call that asked for it, if known. kind: `cell`, or a change that a client made
    without code, of `names`. origin, outcome: of a step that stands for another one in a patched history.
    reads, writes, mutated: names of variables, sorted; those of a private namespace behind its author's, as `ana/x`.
    `*` among them: there may be more, and `unknown` says why. mutated: the same objects with another content.
    files_read, files_written: paths. started: seconds since the epoch. duration: seconds.
    stdout, stderr, value, outputs, error: what it gave, bounded. shed: that was dropped for want of room.
    """

    number: int
    parent: int
    kind: StepKind
    code: str
    names: tuple[str, ...]
    author: str
    cause: str
    status: StepStatus
    origin: int
    outcome: StepOutcome
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    mutated: tuple[str, ...]
    files_read: tuple[str, ...]
    files_written: tuple[str, ...]
    unknown: tuple[str, ...]
    host_calls: tuple[HostCallRecord, ...]
    started: float
    duration: float
    stdout: str
    stderr: str
    value: str | None
    outputs: tuple[MimeBundle, ...]
    error: ErrorInfo | None
    shed: bool

    @classmethod
    def of(cls, record: StepRecord) -> Self:
        unknown = record.unknown
        places = _Places(record)
        return cls(
            number=record.number,
            parent=record.parent,
            kind=record.kind,
            code=record.code,
            names=record.names,
            author=record.author,
            cause=record.cause,
            status=record.status,
            origin=record.origin,
            outcome=record.outcome,
            reads=places.of("name", places.reads, unknown=bool(unknown)),
            writes=places.of("name", places.writes, unknown=bool(unknown)),
            mutated=places.of("name", places.mutated),
            files_read=places.of("file", places.reads),
            files_written=places.of("file", places.writes),
            unknown=unknown,
            host_calls=record.host_calls,
            started=record.started,
            duration=record.duration,
            stdout=record.stdout,
            stderr=record.stderr,
            value=record.value,
            outputs=record.outputs,
            error=record.error,
            shed=record.shed,
        )


class _Places:
    """The locations of one step."""

    def __init__(self, record: StepRecord) -> None:
        trace = record.trace
        self._record = record
        self.reads: Iterable[Location] = looked_at(record)
        self.writes: Iterable[Location] = trace.writes if trace is not None else ()
        self.mutated: Iterable[Location] = trace.mutated if trace is not None else ()

    def of(self, kind: str, places: Iterable[Location], *, unknown: bool = False) -> tuple[str, ...]:
        found = {key_of(located(self._record, each)) for each in places if kind_of(each) == kind}
        return tuple(sorted(found | {ANYTHING} if unknown else found))
