"""Cenote's own HTTP interface: runtimes, cells, variables, files, programs and steps as JSON.

Each operation is a row of `OPERATIONS`, from which the routes and the OpenAPI document are made. Pydantic checks and
writes all bodies, with the classes of the Python API.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from cenote.doors.callers import Caller
from cenote.doors.http_models import (
    CellResult,
    Entry,
    Handover,
    Interrupted,
    Merged,
    NewCell,
    NewEnvironment,
    NewFork,
    NewMerge,
    NewPatch,
    NewProgram,
    NewRuntime,
    NewSnapshot,
    OutputQueue,
    Patched,
    ProgramEnded,
    RolledBack,
    RuntimeEntry,
    StepEntry,
    Target,
    bad_arguments,
)
from cenote.doors.open_runtimes import Door, OpenRuntime
from cenote.doors.request_checks import TooLargeError
from cenote.harness import Patch
from cenote.harness.record.step import Step
from cenote.runtime import ObjectReference
from cenote.runtime.core.listeners import AsyncListener
from cenote.runtime.core.replies import done
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.remote.environments import EnvironmentInfo, PlatformEnvironments
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import MalformedValueError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.values.plain_json import from_json
from cenote_worker.execution.results import (
    SnapshotInfo,
    VariableInfo,
)
from cenote_worker.runtime.jail_requests import WrittenForm
from cenote_worker.supervisor.frame_parser import ValueReply

DOOR: Final = "http"
"""The author of steps that clients of Cenote's own interface run."""

MOST_JSON: Final = 16 * 2**20
MOST_FILE: Final = 256 * 2**20
MOST_VALUE: Final = 64 * 2**20
"""Bytes of a request's JSON, of an uploaded file, of a value that is read: each is in this process's memory."""

ARROW: Final = "application/vnd.apache.arrow.stream"
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OperationCall(Generic[T]):
    """A request, as an operation gets it. path: its parameters."""

    caller: Caller
    door: Door
    request: Request
    path: dict[str, str]
    body: T

    async def runtime(self) -> OpenRuntime:
        return await self.door.get(self.path["runtime"])

    @property
    def environments(self) -> PlatformEnvironments:
        """Raises UsageError on a server without a platform."""
        return self.caller.the_platform().environments


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """One row of the interface. name: of a generated client's method. body: the type of its JSON, or the MIME type of
    bytes; None for none. answer: the same. query: parameters of the URL and what they say. also: further MIME types
    that a client can ask for with `Accept`, and what is in them.
    """

    name: str
    method: str
    path: str
    summary: str
    run: Callable[[OperationCall[Any]], Awaitable[Any]]
    body: Any = None
    answer: Any = None
    status: int = 200
    query: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)


_OPERATIONS: Final[list[HttpOperation]] = []
_RUNTIME: Final = "/v1/runtimes/{runtime}"
_ENVIRONMENT: Final = "/v1/environments/{environment}"
_VARIABLE: Final = f"{_RUNTIME}/variables/{{variable}}"
_FILE: Final = f"{_RUNTIME}/files/{{path:file}}"

Run = TypeVar("Run", bound=Callable[[OperationCall[Any]], Awaitable[Any]])


def _operation(
    method: str,
    path: str,
    summary: str,
    *,
    body: Any = None,
    answer: Any = None,
    status: int = 200,
    query: Mapping[str, str] | None = None,
    also: Mapping[str, str] | None = None,
) -> Callable[[Run], Run]:
    """Turns a function into an operation with the function's name."""

    def add(run: Run) -> Run:
        _OPERATIONS.append(
            HttpOperation(
                run.__name__, method, path, summary, run, body, answer, status, query or {}, also or {}
            )
        )
        return run

    return add


class _FilePath(PathConvertor):
    """Any path: that of `path` ends at the end of a line."""

    regex = r"[\s\S]*"


register_url_convertor("file", _FilePath())

# -- runtimes --


@_operation("GET", "/v1/runtimes", "Names of the runtimes", answer=list[RuntimeEntry])
async def list_runtimes(asked: OperationCall[None]) -> list[RuntimeEntry]:
    return [RuntimeEntry(name=each.name, missing=()) for each in await asked.door.listed()]


@_operation("PUT", _RUNTIME, "Joins a runtime, or makes it", body=NewRuntime, answer=RuntimeEntry)
async def open_runtime(asked: OperationCall[NewRuntime]) -> RuntimeEntry:
    policy = None
    if asked.body.policy is not None:
        policy = SandboxPolicy.from_json(json.dumps(asked.body.policy))
    return _runtime(asked.path["runtime"], (await asked.door.open(asked.path["runtime"], policy)).owner)


@_operation("DELETE", _RUNTIME, "Ends a runtime", status=204)
async def end_runtime(asked: OperationCall[None]) -> None:
    await asked.door.end(asked.path["runtime"])


def _runtime(name: str, runtime: AsyncPythonRuntime) -> RuntimeEntry:
    carried = runtime.carried
    missing = (*carried.missing, *carried.differing) if carried is not None else ()
    return RuntimeEntry(name=name, isolation=runtime.isolation, missing=missing)


# -- cells and programs --


@_operation(
    "POST",
    f"{_RUNTIME}/cells",
    "Runs a cell; as NDJSON or server-sent events, its output comes as it is printed",
    body=NewCell,
    answer=CellResult,
    also={
        NDJSON: "A JSON object a line: `type` is stdout, stderr, dropped or result; `data` is the text, or the "
        "CellResult.",
        EVENTS: "The same as events named stdout, stderr, dropped and result.",
    },
)
async def run_cell(asked: OperationCall[NewCell]) -> object:
    runtime, cell = (await asked.runtime()).author, asked.body
    wanted = asked.request.headers.get("accept", "")
    if NDJSON not in wanted and EVENTS not in wanted:
        return CellResult.of(await runtime.execute(cell.code, cell.timeout, on_error=cell.on_error))
    kind = EVENTS if EVENTS in wanted else NDJSON
    frame = _event if kind == EVENTS else _line
    return StreamingResponse(_streamed(runtime, cell, frame), media_type=kind)


async def _streamed(
    runtime: AsyncPythonRuntime, cell: NewCell, frame: Callable[[str, bytes], bytes]
) -> AsyncIterator[bytes]:
    """What a cell prints as it comes, then its result. A reader that disconnects interrupts it."""
    queue = OutputQueue()
    running = asyncio.ensure_future(
        runtime.execute(cell.code, cell.timeout, queue.put, on_error=cell.on_error)
    )
    running.add_done_callback(lambda _: queue.end())
    try:
        async for kind, text in queue:
            yield frame(kind, json.dumps(text).encode())
        yield frame("result", CellResult.of(await running).model_dump_json().encode())
    finally:
        running.cancel()


def _line(kind: str, data: bytes) -> bytes:
    return b'{"type":"%s","data":%s}\n' % (kind.encode(), data)


def _event(kind: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


@_operation("POST", f"{_RUNTIME}/interrupt", "Interrupts the cell that runs", answer=Interrupted)
async def interrupt(asked: OperationCall[None]) -> Interrupted:
    return Interrupted(interrupted=await (await asked.runtime()).author.interrupt())


@_operation(
    "POST",
    f"{_RUNTIME}/programs",
    "Runs a program beside the namespace",
    body=NewProgram,
    answer=ProgramEnded,
)
async def run_program(asked: OperationCall[NewProgram]) -> ProgramEnded:
    runtime, wanted = (await asked.runtime()).author, asked.body
    ended = await runtime.run(
        wanted.command,
        stdin=wanted.stdin,
        env=wanted.env,
        cwd=wanted.cwd,
        timeout=wanted.timeout,
        max_output=wanted.max_output,
    )
    return ProgramEnded(
        exit_code=ended.exit_code,
        stdout=_text(ended.stdout),
        stderr=_text(ended.stderr),
        omitted=ended.omitted,
        timed_out=ended.timed_out,
        killed_by=ended.killed_by or "",
        duration=ended.duration,
    )


def _text(output: str | bytes) -> str:
    return output if isinstance(output, str) else output.decode(errors="replace")


# -- variables --


@_operation(
    "GET", f"{_RUNTIME}/variables", "Names, types, shapes and sizes; no values", answer=list[VariableInfo]
)
async def list_variables(asked: OperationCall[None]) -> list[VariableInfo]:
    return await (await asked.runtime()).author.describe()


@_operation(
    "GET",
    _VARIABLE,
    f"A value as JSON, or as {ARROW}",
    answer="application/json",
    also={ARROW: "A stream of Arrow's IPC format."},
)
async def get_variable(asked: OperationCall[None]) -> Response:
    arrow = ARROW in asked.request.headers.get("accept", "")
    form = jail_pb2.ARROW_VALUE if arrow else jail_pb2.JSON_VALUE
    core, name = (await asked.runtime()).author.core, asked.path["variable"]
    listener = AsyncListener(core.resume)
    core.fetch(name, listener, opaque=False, written=WrittenForm(form, MOST_VALUE))
    reply = done(await listener.future, name)
    if not isinstance(reply, ValueReply):
        raise MalformedValueError("the runtime gave no value")
    try:
        data = reply.content.whole()
    finally:
        reply.content.close()
    return Response(data, media_type=ARROW if arrow else "application/json")


@_operation("PUT", _VARIABLE, "Sets a variable to a JSON value", body=Any, status=204)
async def set_variable(asked: OperationCall[Any]) -> None:
    await (await asked.runtime()).put(asked.path["variable"], asked.body)


@_operation("DELETE", _VARIABLE, "Removes a variable", status=204)
async def delete_variable(asked: OperationCall[None]) -> None:
    await (await asked.runtime()).author.delete(asked.path["variable"])


@_operation(
    "POST",
    f"{_VARIABLE}/share",
    "Gives a variable to another runtime, by reference",
    body=Handover,
    status=204,
)
async def share_variable(asked: OperationCall[Handover]) -> None:
    giver, taker = await asked.runtime(), await asked.door.get(asked.body.to)
    reference: ObjectReference = await giver.author.share(asked.path["variable"])
    await taker.put(asked.body.name or asked.path["variable"], reference)


# -- files --


@_operation(
    "GET",
    f"{_RUNTIME}/files",
    "The entries of a folder",
    answer=list[Entry],
    query={"path": "the folder; without it the working directory"},
)
async def list_files(asked: OperationCall[None]) -> list[Entry]:
    listing = await (await asked.runtime()).author.files.list(asked.request.query_params.get("path", ""))
    # Names as they are: JSON spells what cannot be printed.
    entries = ((one.raw.decode("utf-8", "backslashreplace"), one) for one in listing)
    return [Entry(name=name, kind=one.kind, size=one.size, modified=one.modified) for name, one in entries]


@_operation("GET", _FILE, "A file's bytes", answer="application/octet-stream")
async def read_file(asked: OperationCall[None]) -> Response:
    data = await (await asked.runtime()).author.files.read(asked.path["path"])
    return Response(data, media_type="application/octet-stream")


@_operation("PUT", _FILE, "Writes a file, whole or not at all", body="application/octet-stream", status=204)
async def write_file(asked: OperationCall[None]) -> None:
    data = await body_of(asked.request, MOST_FILE, "the file")
    await (await asked.runtime()).author.files.write(asked.path["path"], data, overwrite=True)


@_operation("DELETE", _FILE, "Removes a file or an empty folder", status=204)
async def delete_file(asked: OperationCall[None]) -> None:
    await (await asked.runtime()).author.files.delete(asked.path["path"])


def limited(request: Request, most: int, what: str) -> Request:
    """The same request. Reading more than this of its body raises TooLargeError."""
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await request.receive()
        size += len(message.get("body", b""))
        if size > most:
            raise TooLargeError(what, most)
        return message

    return Request(request.scope, receive)


async def body_of(request: Request, most: int, what: str) -> bytes:
    """All of a request's body. Raises TooLargeError before more is in memory."""
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLargeError(what, most)
        parts.append(part)
    return b"".join(parts)


# -- states and steps --


@_operation("GET", f"{_RUNTIME}/snapshots", "States that can be gone back to", answer=list[SnapshotInfo])
async def list_snapshots(asked: OperationCall[None]) -> list[SnapshotInfo]:
    return list(await (await asked.runtime()).owner.snapshots())


@_operation(
    "POST", f"{_RUNTIME}/snapshots", "Keeps the state, under a label", body=NewSnapshot, answer=SnapshotInfo
)
async def make_snapshot(asked: OperationCall[NewSnapshot]) -> SnapshotInfo:
    return await (await asked.runtime()).author.snapshot(asked.body.label)


@_operation(
    "POST",
    f"{_RUNTIME}/rollback",
    "Goes back to the state after a step, or of a label",
    body=Target,
    answer=RolledBack,
)
async def roll_back(asked: OperationCall[Target]) -> RolledBack:
    back = await (await asked.runtime()).owner.rollback(asked.body.to)
    return RolledBack(step=back.step, severed=back.severed, amiss=back.amiss)


@_operation(
    "POST",
    f"{_RUNTIME}/forks",
    "Makes a runtime that begins with this one's state",
    body=NewFork,
    answer=RuntimeEntry,
)
async def fork_runtime(asked: OperationCall[NewFork]) -> RuntimeEntry:
    made = await asked.door.fork(
        asked.path["runtime"], asked.body.name, asked.body.step, partial=asked.body.partial
    )
    return _runtime(asked.body.name, made.owner)


@_operation("POST", f"{_RUNTIME}/merges", "Takes over what a fork has changed", body=NewMerge, answer=Merged)
async def merge_runtime(asked: OperationCall[NewMerge]) -> Merged:
    into, branch, wanted = await asked.runtime(), await asked.door.get(asked.body.branch), asked.body
    merged = await into.owner.merge(branch.owner, wanted.names, wanted.on_conflict)
    return Merged(
        taken=merged.taken,
        deleted=merged.deleted,
        conflicts=merged.conflicts,
        files=merged.files,
        left=dict(merged.left),
        notes=merged.notes,
    )


@_operation("GET", f"{_RUNTIME}/steps", "The record, by all doors", answer=list[StepEntry])
async def list_steps(asked: OperationCall[None]) -> list[StepEntry]:
    state = await (await asked.runtime()).state()
    return [_step(step) for step in state.history]


def _step(step: Step) -> StepEntry:
    names = StepEntry.model_fields.keys() - {"error"}
    facts = {name: getattr(step, name) for name in names}
    return StepEntry(**facts, error=str(step.error) if step.error is not None else None)


@_operation("GET", f"{_RUNTIME}/graph", "Steps and what they took from each other", answer=dict[str, Any])
async def get_graph(asked: OperationCall[None]) -> object:
    return (await (await asked.runtime()).state()).graph()


@_operation(
    "POST",
    f"{_RUNTIME}/patches",
    "Replaces the code of a step, and runs again what depends on it",
    body=NewPatch,
    answer=Patched,
)
async def patch_step(asked: OperationCall[NewPatch]) -> Patched:
    runtime, wanted = await asked.runtime(), asked.body
    state = await runtime.state()
    patch = Patch.replace_step(wanted.step, wanted.code, author=runtime.author.author)
    plan = await state.plan(patch)
    if not wanted.apply:
        rerun = tuple(step.number for step in plan.rerun)
        return Patched(status="planned", explanation=plan.explain(), head=state.head, steps_rerun=rerun)
    result = await state.apply(plan)
    failure = result.failure.error if result.failure is not None else None
    return Patched(
        status=result.status,
        explanation=str(failure or result.blocked or plan.explain()),
        head=result.head,
        steps_rerun=result.steps_rerun,
        steps_reused=result.steps_reused,
        changed=result.changed,
        notes=result.notes,
    )


# -- environments --


@_operation(
    "GET",
    "/v1/environments",
    "The operator's environments, then the tenant's own",
    answer=list[EnvironmentInfo],
)
async def list_environments(asked: OperationCall[None]) -> list[EnvironmentInfo]:
    return await asyncio.to_thread(asked.environments.list)


@_operation(
    "PUT",
    _ENVIRONMENT,
    "Has an environment built in the background, unless it is there; GET says how far it is",
    body=NewEnvironment,
    answer=EnvironmentInfo,
)
async def build_environment(asked: OperationCall[NewEnvironment]) -> EnvironmentInfo:
    wanted = asked.body
    return await asyncio.to_thread(
        asked.environments.begin,
        asked.path["environment"],
        wanted.requirements,
        python=wanted.python,
        lock=wanted.lock,
        lock_file=wanted.lock_file if wanted.lock else "",
    )


@_operation("GET", _ENVIRONMENT, "How far an environment is", answer=EnvironmentInfo)
async def get_environment(asked: OperationCall[None]) -> EnvironmentInfo:
    return await asyncio.to_thread(asked.environments.get, asked.path["environment"])


@_operation("DELETE", _ENVIRONMENT, "Removes an environment that nothing uses", status=204)
async def remove_environment(asked: OperationCall[None]) -> None:
    await asyncio.to_thread(asked.environments.remove, asked.path["environment"])


OPERATIONS: Final = tuple(_OPERATIONS)


def endpoint(
    operation: HttpOperation, caller_of: Callable[[Request], Awaitable[Caller]]
) -> Callable[[Request], Awaitable[Response]]:
    """The request handler. caller_of: raises for a caller without access."""
    body = TypeAdapter(operation.body) if _is_json(operation.body) else None
    empty = b"" if operation.body is Any else b"{}"  # a body of options may be left out; a value may not
    answer = TypeAdapter(operation.answer) if _is_json(operation.answer) else None

    async def serve(request: Request) -> Response:
        caller = await caller_of(request)
        parsed = await _parsed(request, body, empty) if body is not None else None
        asked = OperationCall(
            caller, caller.runtimes.through(DOOR), request, dict(request.path_params), parsed
        )
        work = operation.run(asked)
        found = await (work if body is None else until_gone(request, work))
        if isinstance(found, Response):
            return found
        if answer is None:
            return Response(status_code=operation.status)
        return Response(answer.dump_json(found), operation.status, media_type="application/json")

    return serve


def _is_json(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, str)


async def _parsed(request: Request, adapter: TypeAdapter[Any], empty: bytes) -> Any:
    """empty: what stands for a body that was left out."""
    text = await body_of(request, MOST_JSON, "the request")
    try:
        if b"NaN" in text or b"Infinity" in text:
            from_json(text.decode())  # which pydantic takes
        return adapter.validate_json(text or empty)
    except ValidationError as error:
        raise bad_arguments("the request does", error) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request is no JSON: {str(error)[:200]}") from None


async def until_gone(request: Request, work: Awaitable[T]) -> T:
    """The work's result; it is cancelled when the client disconnects. For requests whose body has been read."""
    working = asyncio.current_task()
    assert working is not None, "requests are handled in tasks"
    leaving = asyncio.ensure_future(_cancel_when_gone(request, working))
    try:
        return await work
    finally:
        leaving.cancel()


async def _cancel_when_gone(request: Request, working: asyncio.Task[Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    working.cancel()
