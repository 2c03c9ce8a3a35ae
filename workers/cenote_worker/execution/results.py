"""The result of one execution: plain frozen values, the same for embedded and remote runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cenote_security.printable import printable
from cenote_security.verdict import Verdict, of_reason
from cenote_worker.execution.trace import StepTrace
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


StreamName = Literal["stdout", "stderr"]

OnError = Literal["keep", "rollback"]
"""What happens to the effects of a failing cell: they stay, or the state is as before the cell."""

StateAfter = Literal["kept", "rolled_back", "lost"]
"""The namespace after a cell: as the cell left it, as it was before the cell, or lost with the jail."""

KeptAs = Literal["", "copy", "cells"]
"""How a state is kept: not at all, as a copy of the process (with small values that came later), or as a copy and the
cells since, which are run again when the state is wanted."""

MAX_ALONG = 1_000
"""Classes sent along with the values of one injection that are reported: clients send 200 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A range of source text. Lines count from 1, columns (in characters) from 0; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why a cell failed, as data. `str()` of it is what a model reads.

    type: class name of the exception, such as `NameError`, or `JailLost`, `PolicyViolation`.
    message: text of the exception with hints (nearest names, close columns) appended; bounded.
    traceback: the user's frames with their source lines, nothing of Cenote's; bounded; may be empty.
    span: the failing expression in the cell's code, when known.
    reason: `exception` for an ordinary exception; else what ended the cell: `time`, `interrupt`, `memory`,
        `disk`, `processes`, `policy`, `exit`, `signal 11`, `protocol`, ...
    outside: no code in the jail can have caused it, as when its first process was killed.
    """

    type: str
    message: str
    traceback: str = ""
    span: Span | None = None
    reason: str = "exception"
    outside: bool = False

    @property
    def verdict(self) -> Verdict:
        """The cause of the failure: the code, a limit, or the system that it ran on."""
        return of_reason(self.reason, outside=self.outside)

    def __str__(self) -> str:
        text = self.traceback or (f"{self.type}: {self.message}" if self.message else self.type)
        return printable(text, lines=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUsage:
    """What one cell cost, counted outside the jail; `docs/limits.md` says how exactly.

    wall, cpu: seconds. cpu is of all processes of the jail where a control group counts it, else of the namespace
        process alone.
    peak_memory: bytes in use by the whole jail at the most, while the cell ran.
    bytes_written: by the namespace process and the children it has waited for, to files and pipes.
    output_bytes: characters that the cell printed, kept or not.
    """

    wall: float = 0.0
    cpu: float = 0.0
    peak_memory: int = 0
    bytes_written: int = 0
    output_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostFailure:
    """The exception that a host function raised: names of classes and texts, nothing more.

    exceptions: the members of an exception group. cause: what it was raised `from`. notes: by `add_note`. base: the
    nearest builtin class that `type` inherits from; empty if it is one itself.
    """

    type: str
    message: str
    exceptions: tuple[HostFailure, ...] = ()
    cause: HostFailure | None = None
    notes: tuple[str, ...] = ()
    base: str = ""


MimeBundle = Mapping[str, str | bytes]
"""One displayed object in one or more representations: text/plain and text/html are str, image/png is bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that another author of the same runtime did to a name that this one had bound or used.

    author: as given to `attach`; empty for the runtime's owner. step: the cell that did it, 0 when it was an
    injection or an update from outside. `str()` of it is what a model reads.
    """

    name: str
    author: str = ""
    step: int = 0
    deleted: bool = False

    def __str__(self) -> str:
        done = "deleted" if self.deleted else "rebound"
        when = f" in step {self.step}" if self.step else ""
        return f"`{self.name}` was {done} by {self.author or 'the owner of the runtime'}{when}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The result of one cell. Made for every cell; code that fails is a field here, never an exception.

    value: repr of the last expression, bounded; None when the cell ends in a statement or in None.
    outputs: displayed objects, in order, the last expression's rich form included.
    step: number of the cell in this runtime, from 1.
    duration: seconds of wall time inside the jail (outside, when the jail died).
    state: what became of the namespace.
    truncated: True when stdout or stderr went over `SandboxPolicy.output` and lost its middle.
    reply: text given to `reply(...)` by a cell that succeeded; an agent's final answer.
    usage: what the cell cost, counted outside the jail; zeros for a cell that did not run.
    news: what happened meanwhile outside that concerns the cell's author, a line each; a model is shown them.
    author: the author, as given to `attach`; empty for the runtime's owner.
    notices: what other authors did to names that this one relies on, since this author's previous cell.
    trace: what it read and wrote, as the process that ran it saw; None where that is not tracked.
    unkept: why the state before the cell is not kept as a snapshot; empty when it is.
    kept_as: how the state before the cell is kept, see KeptAs. Empty also where the cell ended with its process, and
        from platforms of earlier versions.
    printed_in_turns: how stdout and stderr follow each other: characters to stdout, then to stderr, then to stdout
        and so on. Empty where nothing was printed to stderr, or the order is not known; `printed` puts them together.
    back_at: of a cell that was rolled back: the step whose end the namespace is back at, 0 for the beginning; None
    where the next cell starts from a checkpoint, which the error names.
    """

    success: bool
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    outputs: tuple[MimeBundle, ...] = ()
    error: ErrorInfo | None = None
    step: int = 0
    duration: float = 0.0
    state: StateAfter = "kept"
    truncated: bool = False
    reply: str | None = None
    usage: CellUsage = CellUsage()
    news: tuple[str, ...] = ()
    author: str = ""
    notices: tuple[Notice, ...] = ()
    trace: StepTrace | None = field(default=None, repr=False)
    unkept: str = ""
    back_at: int | None = None
    printed_in_turns: tuple[int, ...] = ()
    kept_as: KeptAs = ""

    @property
    def verdict(self) -> Verdict | None:
        """The cause of the failure; None for a success."""
        return None if self.error is None else self.error.verdict

    @property
    def printed(self) -> tuple[tuple[StreamName, str], ...]:
        """The output, in the order in which it was written; where that is not known, stdout, then stderr."""
        texts: dict[StreamName, str] = {"stdout": self.stdout, "stderr": self.stderr}
        turns = self.printed_in_turns
        if (sum(turns[0::2]), sum(turns[1::2])) != (len(self.stdout), len(self.stderr)):
            turns = (len(self.stdout), len(self.stderr))
        pieces: list[tuple[StreamName, str]] = []
        taken: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        for index, length in enumerate(turns):
            stream: StreamName = "stderr" if index % 2 else "stdout"
            start = taken[stream]
            taken[stream] = start + length
            if length:
                pieces.append((stream, texts[stream][start : start + length]))
        return tuple(pieces)


def to_kept_as(text: str) -> KeptAs:
    """Of a message; empty for what this version does not know."""
    return "copy" if text == "copy" else "cells" if text == "cells" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedStep:
    """One step of a line. origin: the recorded step that it replaces, 0 for a new one.

    change: what is different in it, in words; empty for a step as recorded. code: of a changed step.
    """

    origin: int
    change: str = ""
    code: str = ""


PatchStatus = Literal["applied", "failed", "blocked", "cancelled", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmadeCall:
    """A host call that was not made, because its effect outside would have differed from the recorded one."""

    target: str
    method: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRefusal:
    """Why a patch was not applied, for a client that knows this kind of refusal. facts: the error's arguments."""

    kind: str
    facts: tuple[object, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """The result of a patch that was applied on the runtime's side: steps by number. The fields: see ApplyResult.

    failure: 0 for none. refusal: of a patch that was refused.
    """

    status: PatchStatus
    head: int
    rerun: tuple[int, ...] = ()
    reused: tuple[int, ...] = ()
    changed: tuple[str, ...] = ()
    cut_offs: tuple[int, ...] = ()
    seconds_saved: float = 0.0
    records: tuple[int, ...] = ()
    failure: int = 0
    blocked: UnmadeCall | None = None
    aside: int = 0
    refusal: PatchRefusal | None = None
    notes: tuple[str, ...] = ()


BuildStatus = Literal["built", "failed", "blocked", "cancelled"]
"""failed: a step raises, or a test does not pass. blocked: an effect outside would have been repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanInFull:
    """A history was run in full, in another runtime. steps: their numbers there."""

    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of a build on the runtime's side. The fields: see BuildResult.

    steps, before: the new line, and the end of the line that it was made from; empty where none was needed.
    suites: positions of the history's events with the outcomes of each suite. ran: with reasons. refusal: of a build
    that was refused.
    """

    status: BuildStatus | Literal["refused"]
    head: int
    rebuilt: tuple[str, ...] = ()
    applied: Patched | None = None
    steps: tuple[PatchedStep, ...] = ()
    before: int = 0
    suites: tuple[int, ...] = ()
    ran: tuple[tuple[str, str], ...] = ()
    refusal: PatchRefusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """A state that is kept in memory, as its jail describes it.

    step: the step after which it was taken, 0 for the beginning. memory: bytes that would be free without it.
    """

    step: int
    label: str = ""
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """How a runtime's initial state came into its process.

    how: `exact`: as an image of the process, where possible for a fork and a hibernated runtime that wakes;
    `rebuilt`: by value. reason: why it is not exact. missing: what is missing, with
    reasons. differing: what is not as it was, and what could not be compared. Each is a line.
    """

    how: Literal["exact", "rebuilt"]
    missing: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The result of a rollback. step: the namespace is back at the end of this step.

    severed: variables that exist but are useless, since they were a connection, a pipe, a thread or a process.
    unkept: why the state before the rollback is not kept; empty when it is.
    amiss: what else is not as it was, a line each, such as files that are too large to be kept.
    """

    step: int
    severed: tuple[str, ...] = ()
    unkept: str = ""
    amiss: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableInfo:
    """A description of a variable without its value. All text is bounded.

    type: qualified class name, without `builtins.`.
    shape: e.g. `(344, 8)` for arrays and frames, `(12,)` for sized containers, None otherwise.
    size: bytes, estimated cheaply (buffers exactly, containers shallowly).
    description: one short line: columns and dtypes of a frame, keys of a small dict, signature of a function.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None = None
    size: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JailStatus:
    """A live look at a jail, answered even while a cell holds the interpreter lock.

    memory: proportional set size (PSS) of all processes of the jail, its warden included, bytes. processes: their
    number without the warden; the namespace's process always counts, although it may end while the jail is idle and
    start again for the next request.
    step: the cell that is running, None when idle. author: of that cell; empty for the owner's and when idle.
    limits: what enforces the limits of the jail as a whole: `cgroup v1`, `cgroup v2` or `watchdog`.
    """

    memory: int = 0
    processes: int = 0
    step: int | None = None
    isolation: str = field(default="")
    limits: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutput:
    """What the running cell has printed since an earlier look, in the order in which it was written.

    step: the cell, None when none runs. author: of that cell; empty for the owner's and when idle.
    pieces: texts by their streams. missed: characters before them that are not stored any more. end: characters
    printed so far, stored or not.
    """

    step: int | None = None
    author: str = ""
    pieces: tuple[tuple[StreamName, str], ...] = ()
    missed: int = 0
    end: int = 0


FileKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One entry of a working directory, as its jail describes it.

    raw: the name's bytes, which hostile code chose; calls that take a path take them too.
    kind: links are named, never followed. size: bytes. modified: seconds since the epoch. mode: permission bits;
    target: of a link. They are 0 and empty where a relative path was requested without a depth.
    """

    raw: bytes
    kind: FileKind
    size: int = 0
    modified: float = 0.0
    mode: int = 0
    target: str = ""

    @property
    def name(self) -> str:
        """The name, safe to print: what is not printable text is shown as an escape sequence."""
        return printable(self.raw.decode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderListing:
    """The entries of a folder, sorted by name; iterating gives them.

    complete: False when the folder has more entries than were requested; then these are any of them.
    """

    entries: tuple[FileInfo, ...]
    complete: bool = True

    def __iter__(self) -> Iterator[FileInfo]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
