"""Bodies of requests and answers of Cenote's HTTP interface, where no class of the Python API serves already.

Also formats errors in a request's arguments, and queues a cell's output for a client that may be slow.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema

from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.verdict import VerdictKind
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, OnError, StateAfter, StreamName


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _PolicySchema:
    """Describes a policy in OpenAPI by the definitions of its options; its JSON is read where it is used, with the
    sentences of the constructor."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(TypeAdapter(SandboxPolicy).core_schema)


class NewRuntime(_Body):
    """policy: of a runtime that is made, by the names of SandboxPolicy; one that is there keeps its own."""

    policy: Annotated[dict[str, Any], _PolicySchema()] | None = None


class NewEnvironment(_Body):
    """requirements: as pip takes them. lock: instead, the text of a lock file of that format. python: such as `3.12`;
    refused where runtimes have another version.
    """

    requirements: list[str] = []
    lock: str = ""
    lock_file: Literal["requirements.txt", "pylock.toml"] = "requirements.txt"
    python: str = ""


class NewCell(_Body):
    code: str
    timeout: Annotated[float | None, Field(gt=0, description="seconds")] = None
    on_error: OnError = "keep"


class NewProgram(_Body):
    """command: a list of words, or a text for `sh`. Without `cwd`, it runs in the working directory."""

    command: list[str] | str
    stdin: str | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    timeout: Annotated[float | None, Field(gt=0, description="seconds")] = None
    max_output: Annotated[int | None, Field(gt=0, description="bytes of each stream")] = None


class NewSnapshot(_Body):
    label: str | None = None


class Target(_Body):
    """to: the number of a step, or a label."""

    to: int | str


class NewFork(_Body):
    name: str
    step: int | str | None = None
    partial: Annotated[bool, Field(description="go without what cannot be copied, and name it")] = False


class NewMerge(_Body):
    branch: str
    names: list[str] | None = None
    on_conflict: Literal["refuse", "theirs", "ours"] = "refuse"


class Handover(_Body):
    """to: another runtime. name: there; by default the same."""

    to: str
    name: str | None = None


class NewPatch(_Body):
    """apply: false for a plan alone."""

    step: int
    code: str
    apply: bool = False


class RuntimeEntry(BaseModel):
    name: str
    isolation: str = ""
    missing: tuple[str, ...] = Field((), description="of a branch: what could not be brought along")


class Entry(BaseModel):
    name: str
    kind: Literal["file", "folder", "link", "other"]
    size: int
    modified: float


class StepEntry(BaseModel):
    number: int
    parent: int
    kind: str
    status: str
    code: str
    author: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    files_read: tuple[str, ...]
    files_written: tuple[str, ...]
    started: float
    duration: float
    stdout: str
    stderr: str
    value: str | None
    error: str | None


class RolledBack(BaseModel):
    step: int
    severed: tuple[str, ...]
    amiss: tuple[str, ...]


class Merged(BaseModel):
    taken: tuple[str, ...]
    deleted: tuple[str, ...]
    conflicts: tuple[str, ...]
    files: tuple[str, ...]
    left: dict[str, str]
    notes: tuple[str, ...]


class Patched(BaseModel):
    """steps_rerun, steps_reused: by a plan, those that would be."""

    status: str
    explanation: str
    head: int
    steps_rerun: tuple[int, ...]
    steps_reused: tuple[int, ...] = ()
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Interrupted(BaseModel):
    interrupted: bool


class ProgramEnded(BaseModel):
    """omitted: bytes left out of the middle of its output, which was more than `max_output`."""

    exit_code: int | None
    stdout: str
    stderr: str
    omitted: int
    timed_out: bool
    killed_by: str
    duration: float


class CellResult(BaseModel):
    """As ExecutionResult. outputs: displayed objects by MIME type, what is no text as base64."""

    success: bool
    stdout: str
    stderr: str
    value: str | None
    outputs: list[dict[str, str]]
    error: ErrorInfo | None
    step: int
    duration: float
    state: StateAfter
    reply: str | None
    truncated: bool
    notices: list[str]
    news: list[str]
    verdict: VerdictKind | None
    """What a failure is down to: `task`, `limit`, or `infrastructure`."""
    limit: str
    """Which one, for `limit`."""
    back_at: int | None
    """The step whose state is there again, if a failure has rolled the cell back."""
    unkept: str
    """Why the state before the cell could not be kept, if `on_error` wanted it; empty else."""

    @classmethod
    def of(cls, result: ExecutionResult) -> CellResult:
        return cls(
            success=result.success,
            stdout=result.stdout,
            stderr=result.stderr,
            value=result.value,
            outputs=[{mime: _as_text(data) for mime, data in each.items()} for each in result.outputs],
            error=result.error,
            step=result.step,
            duration=result.duration,
            state=result.state,
            reply=result.reply,
            truncated=result.truncated,
            notices=list(map(str, result.notices)),
            news=list(result.news),
            verdict=None if result.verdict is None else result.verdict.kind,
            limit="" if result.verdict is None else result.verdict.limit,
            back_at=result.back_at,
            unkept=result.unkept,
        )


def _as_text(data: str | bytes) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode()


def bad_arguments(what: str, error: ValidationError) -> UsageError:
    """An error that lists all bad arguments by name. what: subject and verb of the sentence."""
    wrong = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors()]
    return UsageError(f"{what} not fit: {'; '.join(wrong)}")


MOST_QUEUED: Final = 4 * 2**20
"""Characters of a cell's output that wait for a slow reader; more is dropped, and a note takes its place."""


class OutputQueue:
    """Output on its way to a reader that may be slow."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, str]] = []
        self._waiting = asyncio.Event()
        self._size = self._dropped = 0
        self._over = False

    def put(self, stream: StreamName, text: str) -> None:
        if self._size + len(text) > MOST_QUEUED:
            self._dropped += len(text)
        else:
            self._size += len(text)
            self._pieces.append((stream, text))
        self._waiting.set()

    def end(self) -> None:
        self._over = True
        self._waiting.set()

    async def __aiter__(self) -> AsyncIterator[tuple[str, str]]:
        while not self._over or self._pieces:
            await self._waiting.wait()
            self._waiting.clear()
            pieces, self._pieces = self._pieces, []
            for stream, text in pieces:
                yield stream, text
                self._size -= len(text)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                yield "dropped", f"{dropped} characters: they were not read fast enough"
            if self._over:
                self._waiting.set()
