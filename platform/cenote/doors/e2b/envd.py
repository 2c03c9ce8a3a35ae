"""E2B's daemon in a sandbox, as its SDKs speak to it: programs by Connect calls in JSON, files by HTTP.

A unary call is a JSON message there and back. A stream is made of frames: a byte of flags, four bytes of length, a
JSON message; the last one, flagged with 2, says how it ended. (https://connectrpc.com/docs/protocol)
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from cenote.doors.e2b.sandboxes import CommandFollower, E2bSandbox, SandboxCommand, SandboxGoneError
from cenote.doors.http_api import MOST_JSON, body_of
from cenote.doors.open_runtimes import NotOpenError
from cenote.runtime.faces.process import AsyncProcess
from cenote_security.errors import (
    CenoteError,
    FileTakenError,
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    UnavailableError,
    UnknownFileError,
    UsageError,
)

Message = TypeVar("Message", bound=BaseModel)

STREAM: Final = "application/connect+json"
_END: Final = 2
_KEEPALIVE: Final = 20.0
"""Seconds of silence after which a stream sends a keepalive."""

MAX_FRAMES: Final = 10_000

_SIGNALS: Final[Mapping[str | int, int]] = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}

_CODES: Final[tuple[tuple[type[CenoteError], str, int], ...]] = (
    (NotAuthenticatedError, "unauthenticated", 401),
    (QuotaExceededError, "resource_exhausted", 429),
    (RejectedError, "permission_denied", 403),
    (UnknownFileError, "not_found", 404),
    (NotOpenError, "not_found", 404),
    (FileTakenError, "already_exists", 409),
    (UsageError, "invalid_argument", 400),
    (UnavailableError, "unavailable", 503),
)


class NoProcessError(NotOpenError):
    """There is no running program of that number."""

    def __init__(self, wanted: object) -> None:
        super().__init__(str(wanted), ())

    def __str__(self) -> str:
        return f"there is no running process {self.name}"


def failed(error: CenoteError) -> Response:
    """The answer to a unary call that failed."""
    code, status = _code_of(error)
    return JSONResponse({"code": code, "message": str(error)}, status)


def _code_of(error: CenoteError) -> tuple[str, int]:
    return next(
        ((code, status) for kind, code, status in _CODES if isinstance(error, kind)), ("internal", 500)
    )


# -- programs --


class _Message(BaseModel):
    """As JSON of protobuf: what is null has its default."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _without_nulls(value: object) -> object:
    return (
        {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value
    )


class _Size(_Message):
    rows: Annotated[int, Field(ge=1, le=10_000)] = 24
    cols: Annotated[int, Field(ge=1, le=10_000)] = 80


class _Terminal(_Message):
    size: Annotated[_Size, BeforeValidator(_without_nulls)] | None = None


class _Selector(_Message):
    pid: int | None = None
    tag: str | None = None


class _Program(_Message):
    cmd: str = ""
    args: list[str] = []
    envs: dict[str, str] = {}
    cwd: str = ""


class _Bytes(_Message):
    stdin: str = ""
    pty: str = ""


class _Start(_Message):
    process: Annotated[_Program, BeforeValidator(_without_nulls)] = _Program()
    pty: Annotated[_Terminal, BeforeValidator(_without_nulls)] = _Terminal()
    tag: str | None = None
    stdin: bool = True


class _Asked(_Message):
    process: Annotated[_Selector, BeforeValidator(_without_nulls)] = _Selector()
    pty: Annotated[_Terminal, BeforeValidator(_without_nulls)] = _Terminal()
    input: Annotated[_Bytes, BeforeValidator(_without_nulls)] = _Bytes()
    signal: str | int = ""


class _Piece(_Message):
    """Of a stream of input: first the program, then what it is to read."""

    start: Annotated[_Asked, BeforeValidator(_without_nulls)] | None = None
    data: Annotated[_Asked, BeforeValidator(_without_nulls)] | None = None


def _asked(kind: type[Message], message: object) -> Message:
    """Raises ValidationError."""
    return kind.model_validate(_without_nulls(message))


@dataclass(frozen=True, slots=True)
class E2bProcesses:
    """The service `process.Process`."""

    def calls(self) -> Mapping[str, Callable[[E2bSandbox, Request], Awaitable[Response]]]:
        return {
            "List": self._list,
            "Start": self._start,
            "Connect": self._connect,
            "Update": self._update,
            "SendInput": self._send_input,
            "StreamInput": self._stream_input,
            "SendSignal": self._send_signal,
            "CloseStdin": self._close_stdin,
        }

    async def _list(self, sandbox: E2bSandbox, _: Request) -> Response:
        running = [
            {"config": dict(command.config), "pid": pid, **({"tag": command.tag} if command.tag else {})}
            for pid, command in sandbox.commands.items()
        ]
        return JSONResponse({"processes": running})

    async def _start(self, sandbox: E2bSandbox, request: Request) -> Response:
        asked = _asked(_Start, await frame_of(request))
        return StreamingResponse(
            stream(_wrapped(_started(sandbox, asked, _deadline(request)))), media_type=STREAM
        )

    async def _connect(self, sandbox: E2bSandbox, request: Request) -> Response:
        pid, command = _selected(sandbox, _asked(_Asked, await frame_of(request)))
        return StreamingResponse(stream(_wrapped(_followed(sandbox, command, pid))), media_type=STREAM)

    async def _update(self, sandbox: E2bSandbox, request: Request) -> Response:
        asked = _asked(_Asked, await message_of(request))
        _, command = _selected(sandbox, asked)
        if size := asked.pty.size:
            command.process.resize(size.rows, size.cols)
        return JSONResponse({})

    async def _send_input(self, sandbox: E2bSandbox, request: Request) -> Response:
        asked = _asked(_Asked, await message_of(request))
        await _write(_selected(sandbox, asked)[1], asked.input)
        return JSONResponse({})

    async def _stream_input(self, sandbox: E2bSandbox, request: Request) -> Response:
        command: SandboxCommand | None = None
        for message in await frames_of(request):
            piece = _asked(_Piece, message)
            if piece.start is not None:
                _, command = _selected(sandbox, piece.start)
            elif piece.data is not None and command is not None:
                await _write(command, piece.data.input)
        return Response(_frame({}) + _frame({}, _END), media_type=STREAM)

    async def _send_signal(self, sandbox: E2bSandbox, request: Request) -> Response:
        asked = _asked(_Asked, await message_of(request))
        _, command = _selected(sandbox, asked)
        number = _SIGNALS.get(asked.signal)
        if number is None:
            raise UsageError(f"a signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL, not {asked.signal!r:.100}")
        command.process.signal(number)
        return JSONResponse({})

    async def _close_stdin(self, sandbox: E2bSandbox, request: Request) -> Response:
        _selected(sandbox, _asked(_Asked, await message_of(request)))[1].process.close_stdin()
        return JSONResponse({})


def _deadline(request: Request) -> float | None:
    """Seconds that a call may take, including the program that it started; None for no limit."""
    told = request.headers.get("connect-timeout-ms", "")
    return int(told) / 1000 if told.isdecimal() and int(told) else None


async def _started(
    sandbox: E2bSandbox, asked: _Start, timeout: float | None
) -> AsyncIterator[dict[str, object]]:
    program, terminal = asked.process, asked.pty.size
    process: AsyncProcess = await (await sandbox.runtime()).author.spawn(
        [program.cmd, *program.args],
        env=program.envs,
        cwd=program.cwd or None,
        timeout=timeout,
        pty=(terminal.rows, terminal.cols) if terminal else False,
    )
    if not terminal and not asked.stdin:
        process.close_stdin()
    command = SandboxCommand(
        process=process, config=program.model_dump(), tag=asked.tag, is_terminal=terminal is not None
    )
    if not (pid := await process.pid()):
        await process.wait()  # raises the reason why it was never begun
    events = _followed(sandbox, command, pid)
    following = asyncio.create_task(_follow(sandbox, pid, command))
    sandbox.following.add(following)
    following.add_done_callback(sandbox.following.discard)
    async with aclosing(events) as source:  # type: ignore[type-var]
        async for event in source:
            yield event


async def _followed(
    sandbox: E2bSandbox, command: SandboxCommand, pid: int
) -> AsyncIterator[dict[str, object]]:
    """Its output from here on, until its end. Cut where the sandbox was ended meanwhile."""
    follower = CommandFollower()
    command.followers.add(follower)
    try:
        yield {"start": {"pid": pid}}
        while True:
            try:
                event = await asyncio.wait_for(follower.get(), _KEEPALIVE)
            except TimeoutError:
                event = {"keepalive": {}}
            if "end" in event and sandbox.state == "killed":
                raise SandboxGoneError
            yield event
            if "end" in event:
                return
    finally:
        command.followers.discard(follower)
        follower.leave()


async def _wrapped(events: AsyncIterator[dict[str, object]]) -> AsyncIterator[dict[str, object]]:
    async with aclosing(events) as source:  # type: ignore[type-var]
        async for event in source:
            yield {"event": event}


async def _follow(sandbox: E2bSandbox, pid: int, command: SandboxCommand) -> None:
    """Passes a program's output to all followers, until its end; the program continues without followers."""
    error = ""
    sandbox.commands[pid] = command
    try:
        async for stream, data in command.process:
            kind = "pty" if command.is_terminal else stream
            await _tell(command, {"data": {kind: base64.b64encode(data).decode()}})
        result = await command.process.wait()
        status = f"exit status {result.exit_code}" if result.exit_code is not None else str(result.killed_by)
        exited, code = result.exit_code is not None, result.exit_code
    except CenoteError as failure:
        error, status, exited, code = str(failure), "failed", False, None
    finally:
        sandbox.commands.pop(pid, None)
    end: dict[str, object] = {
        "exitCode": code if code is not None else -1,
        "exited": exited,
        "status": status,
    }
    await _tell(command, {"end": {**end, **({"error": error or status} if code != 0 else {})}})


async def _tell(command: SandboxCommand, event: dict[str, object]) -> None:
    """Blocks for the slowest follower."""
    for follower in tuple(command.followers):
        await follower.put(event)


def _selected(sandbox: E2bSandbox, asked: _Asked) -> tuple[int, SandboxCommand]:
    """Raises NoProcessError."""
    selector = asked.process
    for pid, command in sandbox.commands.items():
        if pid == selector.pid or (command.tag is not None and command.tag == selector.tag):
            return pid, command
    raise NoProcessError(selector.pid or selector.tag)


async def _write(command: SandboxCommand, given: _Bytes) -> None:
    try:
        data = base64.b64decode(given.stdin or given.pty, validate=True)
    except ValueError:
        raise UsageError("input is base64") from None
    await command.process.send_input(data)


# -- frames --


async def message_of(request: Request) -> dict[str, Any]:
    return _parsed(await body_of(request, MOST_JSON, "the request"))


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise UsageError("the request is no JSON") from None
    if not isinstance(message, dict):
        raise UsageError("the request is no JSON object")
    return message


async def frames_of(request: Request) -> list[dict[str, Any]]:
    """All messages of a request's stream. Raises UsageError."""
    data, found, at = await body_of(request, MOST_JSON, "the request"), list[dict[str, Any]](), 0
    while at < len(data):
        flags, end = data[at], at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        if len(data) < max(end, at + 5) or flags & 1:
            raise UsageError("the request is no stream of whole, uncompressed frames")
        if not flags & _END:
            found.append(_parsed(data[at + 5 : end]))
        if len(found) > MAX_FRAMES:
            raise UsageError(f"the request has more than {MAX_FRAMES} messages")
        at = end
    if not found:
        raise UsageError("the request has no message")
    return found


async def frame_of(request: Request) -> dict[str, Any]:
    """The one message of a request's stream. Raises UsageError."""
    found = await frames_of(request)
    if len(found) > 1:
        raise UsageError("the request has more than one message")
    return found[0]


def _frame(message: object, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return bytes((flags,)) + len(data).to_bytes(4, "big") + data


async def stream(events: AsyncIterator[dict[str, object]]) -> AsyncIterator[bytes]:
    """Events as frames; an error ends the stream, in E2B's terms."""
    end: dict[str, object] = {}
    async with aclosing(events) as source:  # type: ignore[type-var]
        try:
            async for event in source:
                yield _frame(event)
        except CenoteError as error:
            end = {"error": {"code": _code_of(error)[0], "message": str(error)}}
    yield _frame(end, _END)
