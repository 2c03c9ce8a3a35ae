"""E2B's daemon in a sandbox, as its SDKs speak to it: programs by Connect calls in JSON, files by HTTP.

A unary call is a JSON message there and back. A stream is made of frames: a byte of flags, four bytes of length, a
JSON message; the last one, flagged with 2, says how it ended. (https://connectrpc.com/docs/protocol)
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from cenote.doors.e2b.sandboxes import Command, E2bSandbox
from cenote.doors.http_api import MOST_JSON, body_of
from cenote.doors.open_runtimes import NotOpenError
from cenote.runtime.process import AsyncProcess
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

STREAM: Final = "application/connect+json"
_END: Final = 2
_KEEPALIVE: Final = 20.0
"""Seconds of silence after which a stream says that it is alive."""

_SIGNALS: Final = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}

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
        (message,) = await frames_of(request)
        return StreamingResponse(
            stream(_wrapped(_started(sandbox, message, _deadline(request)))), media_type=STREAM
        )

    async def _connect(self, sandbox: E2bSandbox, request: Request) -> Response:
        (message,) = await frames_of(request)
        return StreamingResponse(stream(_wrapped(_joined(sandbox, message))), media_type=STREAM)

    async def _update(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await message_of(request)
        _, command = _selected(sandbox, message)
        if size := message.get("pty", {}).get("size"):
            command.process.resize(size.get("rows", 24), size.get("cols", 80))
        return JSONResponse({})

    async def _send_input(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await message_of(request)
        await _write(_selected(sandbox, message)[1], message.get("input", {}))
        return JSONResponse({})

    async def _stream_input(self, sandbox: E2bSandbox, request: Request) -> Response:
        command: Command | None = None
        for message in await frames_of(request):
            if "start" in message:
                _, command = _selected(sandbox, message["start"])
            elif "data" in message and command is not None:
                await _write(command, message["data"].get("input", {}))
        return Response(_frame({}) + _frame({}, _END), media_type=STREAM)

    async def _send_signal(self, sandbox: E2bSandbox, request: Request) -> Response:
        message = await message_of(request)
        _, command = _selected(sandbox, message)
        number = _SIGNALS.get(message.get("signal", ""))
        if number is None:
            raise UsageError(
                f"a signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL, not {message.get('signal')!r:.100}"
            )
        command.process.signal(number)
        return JSONResponse({})

    async def _close_stdin(self, sandbox: E2bSandbox, request: Request) -> Response:
        _selected(sandbox, await message_of(request))[1].process.close_stdin()
        return JSONResponse({})


def _deadline(request: Request) -> float | None:
    """Seconds that a call may take, and what it has started; None for no limit."""
    told = request.headers.get("connect-timeout-ms", "")
    return int(told) / 1000 if told.isdecimal() and int(told) else None


async def _started(
    sandbox: E2bSandbox, message: Mapping[str, Any], timeout: float | None
) -> AsyncIterator[dict[str, object]]:
    config, terminal = message.get("process", {}), message.get("pty", {}).get("size")
    argv = [config.get("cmd", ""), *config.get("args", [])]
    process: AsyncProcess = await (await sandbox.runtime()).author.spawn(
        argv,
        env=config.get("envs") or {},
        cwd=config.get("cwd") or None,
        timeout=timeout,
        pty=(terminal.get("rows", 24), terminal.get("cols", 80)) if terminal else False,
    )
    if not terminal and not message.get("stdin", True):
        process.close_stdin()
    command = Command(process=process, config=config, tag=message.get("tag"), is_terminal=bool(terminal))
    queue: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    command.followers.add(queue)
    pid = await process.pid()
    following = asyncio.create_task(_follow(sandbox, pid, command))
    if pid:
        sandbox.commands[pid] = command
        yield {"start": {"pid": pid}}
    try:
        async for event in _events(queue):
            yield event
    finally:
        command.followers.discard(queue)
        if following.done():
            following.result()


async def _joined(sandbox: E2bSandbox, message: Mapping[str, Any]) -> AsyncIterator[dict[str, object]]:
    pid, command = _selected(sandbox, message)
    queue: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    command.followers.add(queue)
    yield {"start": {"pid": pid}}
    try:
        async for event in _events(queue):
            yield event
    finally:
        command.followers.discard(queue)


async def _wrapped(events: AsyncIterator[dict[str, object]]) -> AsyncIterator[dict[str, object]]:
    async with aclosing(events) as source:  # type: ignore[type-var]
        async for event in source:
            yield {"event": event}


async def _events(queue: asyncio.Queue[dict[str, object]]) -> AsyncIterator[dict[str, object]]:
    while True:
        try:
            event = await asyncio.wait_for(queue.get(), _KEEPALIVE)
        except TimeoutError:
            event = {"keepalive": {}}
        yield event
        if "end" in event:
            return


async def _follow(sandbox: E2bSandbox, pid: int, command: Command) -> None:
    """Hands on what a program writes, to all who follow it, until its end; it goes on when none does."""
    error = ""
    try:
        async for stream, data in command.process:
            kind = "pty" if command.is_terminal else stream
            _tell(command, {"data": {kind: base64.b64encode(data).decode()}})
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
    _tell(command, {"end": {**end, **({"error": error or status} if code != 0 else {})}})


def _tell(command: Command, event: dict[str, object]) -> None:
    for queue in command.followers:
        queue.put_nowait(event)


def _selected(sandbox: E2bSandbox, message: Mapping[str, Any]) -> tuple[int, Command]:
    """Raises NoProcessError."""
    selector = message.get("process", {})
    for pid, command in sandbox.commands.items():
        if pid == selector.get("pid") or (command.tag is not None and command.tag == selector.get("tag")):
            return pid, command
    raise NoProcessError(selector.get("pid") or selector.get("tag"))


async def _write(command: Command, given: Mapping[str, str]) -> None:
    try:
        data = base64.b64decode(given.get("stdin") or given.get("pty") or "", validate=True)
    except binascii.Error:
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
    data, found = await body_of(request, MOST_JSON, "the request"), list[dict[str, Any]]()
    while data:
        size = int.from_bytes(data[1:5], "big")
        if len(data) < 5 + size or data[0] & 1:
            raise UsageError("the request is no stream of whole, uncompressed frames")
        if not data[0] & _END:
            found.append(_parsed(data[5 : 5 + size]))
        data = data[5 + size :]
    if not found:
        raise UsageError("the request has no message")
    return found


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
