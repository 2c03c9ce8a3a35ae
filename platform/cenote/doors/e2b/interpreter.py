"""E2B's code interpreter: cells in contexts, their output line by line."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from cenote.doors.e2b.sandboxes import HOME, CodeContext, E2bSandbox, SandboxGoneError
from cenote.doors.http_api import MOST_JSON, body_of
from cenote.doors.http_models import OutputQueue
from cenote_security.errors import CenoteError, UsageError
from cenote_worker.execution.results import ExecutionResult, MimeBundle
from cenote_worker.jail.output.e2b_forms import CHART, DATA

_FORMATS: Final = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/javascript": "javascript",
}

_AS_DATA: Final = {"application/json": "json", DATA: "data", CHART: "chart"}

_PYTHON: Final = ("python", "python3", "py")
_SHELL: Final = ("bash", "sh")


class _NewExecution(BaseModel):
    model_config = ConfigDict(extra="ignore")

    code: str
    context_id: str | None = None
    language: str | None = None
    env_vars: dict[str, str] | None = None


class _NewContext(BaseModel):
    model_config = ConfigDict(extra="ignore")

    language: str | None = None
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class E2bInterpreter:
    """The service at the port of the interpreter."""

    async def execute(self, sandbox: E2bSandbox, request: Request) -> Response:
        wanted = _NewExecution.model_validate_json(await body_of(request, MOST_JSON, "the cell"))
        context = await sandbox.context(wanted.context_id)
        code = _code(wanted)
        return StreamingResponse(
            _streamed(sandbox, context, code, wanted.env_vars or {}), media_type="application/x-ndjson"
        )

    async def contexts(self, sandbox: E2bSandbox, request: Request) -> Response:
        if request.method == "GET":
            await sandbox.context(None)
            return JSONResponse([_shown(each) for each in sandbox.contexts.values()])
        wanted = _NewContext.model_validate_json(await body_of(request, MOST_JSON, "the request") or b"{}")
        _check_language(wanted.language or "python", (*_PYTHON,))
        return JSONResponse(_shown(await sandbox.new_context(wanted.cwd or HOME)), 201)

    async def context(self, sandbox: E2bSandbox, request: Request) -> Response:
        found = await sandbox.context(request.path_params["context"])
        if request.method == "DELETE":
            await sandbox.remove(found)
        else:
            await sandbox.restart(found)
        return Response(status_code=204)


def _code(wanted: _NewExecution) -> str:
    language = (wanted.language or "python").lower()
    _check_language(language, (*_PYTHON, *_SHELL))
    return f"%%bash\n{wanted.code}" if language in _SHELL else wanted.code


def _check_language(language: str, known: tuple[str, ...]) -> None:
    if language.lower() not in known:
        raise UsageError(f"a sandbox runs Python and bash, not {language!r:.100}")


def _shown(context: CodeContext) -> dict[str, str]:
    return {"id": context.id, "language": "python", "cwd": context.cwd}


async def _streamed(
    sandbox: E2bSandbox, context: CodeContext, code: str, env: dict[str, str]
) -> AsyncIterator[bytes]:
    """A client that disconnects interrupts its cell. If its sandbox is ended meanwhile, its connection is cut."""
    async with context.busy:
        queue = OutputQueue()
        running = asyncio.ensure_future(_run(context, code, env, queue))
        running.add_done_callback(lambda _: queue.end())
        try:
            async for stream, text in queue:
                if stream != "dropped":
                    yield _line(stream, text=text, timestamp=time.time_ns() // 1_000)
            try:
                result = await running
            except CenoteError as error:
                if sandbox.state == "killed":
                    raise SandboxGoneError from None
                yield _line("error", name=type(error).__name__, value=str(error), traceback=str(error))
                return
            if sandbox.state == "killed":
                raise SandboxGoneError
            for line in _results(result):
                yield line
            context.count += 1
            yield _line("number_of_executions", execution_count=context.count)
        finally:
            running.cancel()


async def _run(context: CodeContext, code: str, env: dict[str, str], queue: OutputQueue) -> ExecutionResult:
    if not env:
        return await context.author.execute(code, on_output=queue.put)
    before = f"import os as _os\n_env = dict(_os.environ)\n_os.environ.update({env!r})\ndel _os"
    after = "import os as _os\n_os.environ.clear()\n_os.environ.update(_env)\ndel _os, _env"
    await context.author.execute(before)
    try:
        return await context.author.execute(code, on_output=queue.put)
    finally:
        await context.author.execute(after)


def _results(result: ExecutionResult) -> list[bytes]:
    lines = list[bytes]()
    outputs = list(result.outputs)
    main: dict[str, Any] | None = None
    if result.value is not None:
        rich = outputs.pop() if outputs and outputs[-1].get("text/plain") == result.value else {}
        main = {**_formats(rich), "text": _unquoted(result.value), "is_main_result": True}
    lines += [_line("result", **_formats(bundle), is_main_result=False) for bundle in outputs]
    if main is not None:
        lines.append(_line("result", **main))
    if (error := result.error) is not None:
        message = (
            error.message.partition("; ")[0] if error.type == "NameError" else error.message
        )  # without a hint
        lines.append(_line("error", name=error.type, value=message, traceback=str(error)))
    return lines


def _unquoted(text: str) -> str:
    """E2B's results show the text of a string without quotes."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _formats(bundle: MimeBundle) -> dict[str, Any]:
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    rich = [mime for mime in bundle if mime != "text/plain"]
    stands_in = f"<{', '.join(rich)}>"  # for an object that was displayed without a text
    for mime, data in bundle.items():
        if mime == "text/plain" and data == stands_in:
            continue
        text = data if isinstance(data, str) else base64.b64encode(data).decode()
        if mime in _AS_DATA:
            found.update(_parsed(_AS_DATA[mime], data))
        elif mime in _FORMATS:
            found[_FORMATS[mime]] = text
        else:
            extra[mime] = text
    return {**found, **({"extra": extra} if extra else {})}


def _parsed(name: str, data: str | bytes) -> dict[str, Any]:
    """Returns nothing for invalid JSON: a jail may send anything."""
    try:
        return {name: json.loads(data, parse_constant=lambda _: None)}  # NaN, which is no JSON
    except (ValueError, RecursionError):
        return {}


def _line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, **fields}).encode() + b"\n"
