"""One step as recorded: the request, its author, its result, what it read and wrote."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

from cenote_worker.execution.results import CellUsage, ErrorInfo, HostFailure, KeptAs, MimeBundle
from cenote_worker.execution.trace import StepTrace

StepKind = Literal["cell", "injection", "deletion", "upload", "removal", "unrecorded", "process"]
"""cell: code. injection: values from a client. deletion: a name that a client deleted. upload, removal: a file that a
client wrote or removed. unrecorded: all earlier steps, whose record was lost with another process; it has the number
of the last of them. process: a process beside the namespace; the files that it read and wrote are not known."""

StepStatus = Literal["ok", "failed", "rolled_back", "lost", "refused"]
"""failed: what it had done by then stays. rolled_back: the state is as it was before. lost: the jail is gone.
refused: nothing ran."""

StepOutcome = Literal["executed", "reused"]

HostEffect = Literal["pure", "idempotent", "external"]

START: Final = 0
"""Stands for the state before any step: the values that were injected before the first one."""

UNTRACED: Final = "the step was not traced"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCallRecord:
    """A host call of a step.

    digest: of the encoded arguments, empty when they are too large to be compared. arguments, reply: the bytes of a
    Content, None where they are too large to be kept, or are passed by reference. parts: see Content.count, of the
    reply.
    error: what it raised. Without reply and error its outcome is unknown.
    """

    target: str
    method: str = ""
    effect: HostEffect = "external"
    digest: str = ""
    arguments: bytes | None = field(default=None, repr=False)
    reply: bytes | None = field(default=None, repr=False)
    parts: int = 0
    error: HostFailure | None = None

    @property
    def answered(self) -> bool:
        """Whether its outcome is known."""
        return self.reply is not None or self.error is not None

    @property
    def size(self) -> int:
        """Bytes of its large fields."""
        return len(self.arguments or b"") + len(self.reply or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step. Equal numbers are equal steps, within one runtime and for ever.

    parent: the step in whose state it began; START before the first. origin: the step that it replaces in a patched
    history, 0 for none. outcome: reused where it has the result of its origin and did not run.
    code: of a cell, as given; of a process, its command. names: of an injection or deletion; or paths.
    content: of an upload, the digest under which the history keeps the file's content; of an injection, the key of
    its values in the history or in the runtime that holds them; empty where they are lost.
    author: empty for the owner. private: its names are the author's own. cause: the model call that asked for it.
    stdout, stderr, value, outputs, error, reply: as in ExecutionResult, bounded; shed: they were dropped later.
    trace: None when it is not known what it read and wrote. dropped_calls: number of host calls not recorded.
    started: seconds since the epoch. duration: seconds. timeout: seconds allowed for a cell; 0 for no limit.
    atomic: a failure of the cell would have undone its effects. kept_as: of a cell, as in ExecutionResult.
    """

    number: int
    parent: int = START
    origin: int = 0
    outcome: StepOutcome = "executed"
    kind: StepKind = "cell"
    code: str = ""
    names: tuple[str, ...] = ()
    content: str = ""
    author: str = ""
    private: bool = False
    cause: str = ""
    status: StepStatus = "ok"
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    outputs: tuple[MimeBundle, ...] = ()
    error: ErrorInfo | None = None
    reply: str | None = None
    shed: bool = False
    trace: StepTrace | None = None
    host_calls: tuple[HostCallRecord, ...] = ()
    dropped_calls: int = 0
    started: float = 0.0
    duration: float = 0.0
    timeout: float = 0.0
    atomic: bool = False
    kept_as: KeptAs = ""
    usage: CellUsage = field(default_factory=CellUsage)

    @property
    def stays(self) -> bool:
        """Whether its effects are part of the states after it."""
        return self.status in ("ok", "failed")

    @property
    def repeatable(self) -> bool:
        """Whether it can be repeated in the common namespace: code that ran there, the removal of a file or a name,
        an upload or an injection whose content is kept.
        """
        if self.kind == "removal":
            return True
        if self.kind == "upload":
            return bool(self.content)
        return not self.private and (self.kind in ("cell", "deletion") or bool(self.content))

    @property
    def changes_file(self) -> bool:
        """Whether a client has written or removed a file."""
        return self.kind in ("upload", "removal")

    @property
    def by_hand(self) -> bool:
        """Whether a client did it without code: repeating it has the same effect."""
        return self.kind in ("injection", "deletion") or self.changes_file

    @property
    def tells_calls(self) -> bool:
        """Whether all its host calls are recorded, each so that it can be recognised in a second run."""
        return not self.dropped_calls and all(call.digest for call in self.host_calls)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it may have read and written more than its trace lists; empty when the trace is complete."""
        return (UNTRACED,) if self.trace is None else self.trace.unknown

    @property
    def size(self) -> int:
        """Approximate bytes of what is shed when a history gets too large."""
        shown = sum([len(part) for bundle in self.outputs for part in bundle.values()])
        error = len(self.error.traceback) + len(self.error.message) if self.error else 0
        texts = len(self.stdout) + len(self.stderr) + len(self.value or "") + len(self.reply or "")
        return shown + error + texts + sum([call.size for call in self.host_calls])

    def without_results(self) -> Self:
        """The same step without its results and the replies of its host calls; the calls themselves stay recorded."""
        error = replace(self.error, message="", traceback="") if self.error is not None else None
        calls = tuple(replace(call, arguments=None, reply=None) for call in self.host_calls)
        return replace(
            self,
            stdout="",
            stderr="",
            value=None,
            outputs=(),
            error=error,
            reply=None,
            host_calls=calls,
            shed=True,
        )
