"""A step as users see it."""

from __future__ import annotations

from collections.abc import Iterable

from cenote_worker.execution.results import ErrorInfo, KeptAs, MimeBundle
from cenote_worker.execution.trace import ANYTHING, Location, key_of, kind_of
from cenote_worker.history.step import HostCallRecord, StepKind, StepOutcome, StepRecord, StepStatus
from cenote_worker.history.tree import located, looked_at


class Step:
    """One step of a runtime: a view of its record, cheap to make, since questions return thousands of them.

    Names of variables are sorted; those of a private namespace stand after its author's, as `ana/x`. `*` among them:
    there may be more, and `unknown` says why.
    """

    __slots__ = ("record",)

    def __init__(self, record: StepRecord) -> None:
        self.record = record

    def __eq__(self, other: object) -> bool:
        return self.record == other.record if isinstance(other, Step) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.record.number)

    def __repr__(self) -> str:
        return f"<Step {self.number} {self.status}: {(self.code or self.kind)[:60]!r}>"

    @property
    def number(self) -> int:
        """Never used twice in one runtime."""
        return self.record.number

    @property
    def parent(self) -> int:
        """The step in whose state it began; 0 for the start."""
        return self.record.parent

    @property
    def kind(self) -> StepKind:
        """`cell`, `process` for a program beside the namespace, or a change that a client made without code."""
        return self.record.kind

    @property
    def code(self) -> str:
        return self.record.code

    @property
    def names(self) -> tuple[str, ...]:
        """What a change without code is about: variables, paths of files."""
        return self.record.names

    @property
    def author(self) -> str:
        """Empty for the runtime's owner."""
        return self.record.author

    @property
    def cause(self) -> str:
        """The model call that asked for it, if known."""
        return self.record.cause

    @property
    def status(self) -> StepStatus:
        return self.record.status

    @property
    def origin(self) -> int:
        """The step that it stands for in a patched history; 0 for none."""
        return self.record.origin

    @property
    def outcome(self) -> StepOutcome:
        """`reused` where it has the result of its origin and did not run."""
        return self.record.outcome

    @property
    def reads(self) -> tuple[str, ...]:
        return self._names("name", looked_at(self.record), doubt=True)

    @property
    def writes(self) -> tuple[str, ...]:
        trace = self.record.trace
        return self._names("name", trace.writes if trace is not None else (), doubt=True)

    @property
    def mutated(self) -> tuple[str, ...]:
        """Of what it wrote, the same objects with another content."""
        trace = self.record.trace
        return self._names("name", trace.mutated if trace is not None else ())

    @property
    def files_read(self) -> tuple[str, ...]:
        return self._names("file", looked_at(self.record))

    @property
    def files_written(self) -> tuple[str, ...]:
        trace = self.record.trace
        return self._names("file", trace.writes if trace is not None else ())

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it may have read or written more than is listed; empty when it has not."""
        return self.record.unknown

    @property
    def host_calls(self) -> tuple[HostCallRecord, ...]:
        return self.record.host_calls

    @property
    def kept_as(self) -> KeptAs:
        """How the state before a cell was kept when the cell ended, as in ExecutionResult."""
        return self.record.kept_as

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return self.record.started

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.record.duration

    @property
    def stdout(self) -> str:
        return self.record.stdout

    @property
    def stderr(self) -> str:
        return self.record.stderr

    @property
    def value(self) -> str | None:
        return self.record.value

    @property
    def outputs(self) -> tuple[MimeBundle, ...]:
        """Displayed objects, as in ExecutionResult; like all results bounded."""
        return self.record.outputs

    @property
    def error(self) -> ErrorInfo | None:
        return self.record.error

    @property
    def shed(self) -> bool:
        """Whether its results were dropped to save memory."""
        return self.record.shed

    def _names(self, kind: str, places: Iterable[Location], *, doubt: bool = False) -> tuple[str, ...]:
        found = {key_of(located(self.record, each)) for each in places if kind_of(each) == kind}
        return tuple(sorted(found | {ANYTHING} if doubt and self.unknown else found))
