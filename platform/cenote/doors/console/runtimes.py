"""Pages of runtimes: all of them, one with its steps and variables, its files; and what they do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response, StreamingResponse

from cenote.doors.console.live import events
from cenote.doors.console.session import (
    HEADERS,
    PagedRuntime,
    PageRoute,
    StepPage,
    Visit,
    address,
    page_number,
    redirect,
)
from cenote.doors.console.steps import JAIL_HEADERS
from cenote.doors.open_runtimes import OpenRuntime
from cenote.harness.questions.execution_state import ExecutionState
from cenote.harness.questions.provenance import LiveVariable
from cenote_security.errors import UnavailableError
from cenote_worker.execution.results import VariableInfo

RUNTIMES_OF_A_PAGE: Final = 200

STEPS_OF_A_PAGE: Final = 100

MOST_VARIABLES: Final = 300
FILES_OF_A_PAGE: Final = 300

MOST_PREVIEW: Final = 64_000
"""Bytes of a text that are shown."""

_BEGINNINGS: Final = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF....WEBP",
}
"""Not SVG: browsers take it for a document, too."""

Answer = TypeVar("Answer")

PATIENCE: Final = 5.0
"""Seconds that a page waits for a namespace, or for a cell that it has begun."""


async def fleet(visit: Visit) -> Response:
    """All runtimes that the caller may open."""
    sought = visit.request.query_params.get("q", "")
    listed = [one for one in await visit.door.listed() if sought.lower() in one.name.lower()]
    after = visit.request.query_params.get("after", "")
    shown = [one for one in listed if one.name > after][: RUNTIMES_OF_A_PAGE + 1]
    return visit.page(
        "fleet",
        title="Runtimes",
        runtimes=shown[:RUNTIMES_OF_A_PAGE],
        following=shown[RUNTIMES_OF_A_PAGE - 1].name if len(shown) > RUNTIMES_OF_A_PAGE else "",
        count=len(listed),
        sought=sought,
    )


async def _runtime(visit: Visit) -> Response:
    seen = await visit.door.get(visit.name)
    runtime = seen if isinstance(seen, OpenRuntime) else None
    before = page_number(visit.request.query_params.get("before", ""))
    page = None
    if isinstance(seen, PagedRuntime) and "variables" not in visit.request.query_params:
        page = await seen.page(before, STEPS_OF_A_PAGE)
    is_part = page is not None
    variables: Sequence[VariableInfo | LiveVariable] | None = None
    status, idle = None, False
    if page is None:
        state = await seen.state()
        page = _step_page(state, before)
        if runtime is None:
            variables = (await asyncio.to_thread(state.at, state.head)).variables
    if runtime is not None:
        status = await runtime.owner.status()
        idle = status.step is None and not visit.cells.waits(runtime)
        variables = await variables_of(runtime) if idle else None
    end = page.begin + len(page.steps)
    return visit.page(
        "runtime",
        script=runtime is not None,
        title=visit.name,
        name=visit.name,
        steps=page.steps[::-1],
        earlier=page.begin,
        later=min(end + STEPS_OF_A_PAGE, page.count) if end < page.count else None,
        count=page.count,
        head=page.head,
        jail=status,
        busy=not idle,
        is_part=is_part,
        variables=variables[:MOST_VARIABLES] if variables is not None else None,
        more=max(0, len(variables or ()) - MOST_VARIABLES),
        snapshots=await runtime.owner.snapshots() if runtime is not None and idle else (),
    )


def _step_page(state: ExecutionState, before: int | None) -> StepPage:
    steps = state.history
    end = len(steps) if before is None else min(before, len(steps))
    begin = max(0, end - STEPS_OF_A_PAGE)
    return StepPage(steps=steps[begin:end], begin=begin, count=len(steps), head=state.head)


async def _live(visit: Visit) -> Response:
    """What happens there, as server-sent events."""
    runtime = await visit.runtime()
    stream = events(runtime, visit.cells, visit.request.headers.get("last-event-id", ""))
    return StreamingResponse(stream, headers=HEADERS, media_type="text/event-stream")


async def _files(visit: Visit) -> Response:
    path = visit.request.query_params.get("path", "")
    begin = page_number(visit.request.query_params.get("from", "")) or 0
    found = await _in_time((await visit.runtime()).author.files.list(path))
    end = begin + FILES_OF_A_PAGE
    return visit.page(
        "files",
        title=f"{visit.name}, files{f' in {path}' if path else ''}",
        name=visit.name,
        folder=f"{path.rstrip('/')}/" if path else "",
        entries=found.entries[begin:end],
        earlier=max(0, begin - FILES_OF_A_PAGE) if begin else None,
        later=end if end < len(found) else None,
        complete=found.complete,
    )


async def _preview(visit: Visit) -> Response:
    """The beginning of a text, or a picture."""
    path = visit.request.query_params.get("path", "")
    files = (await visit.runtime()).author.files
    size = (await _in_time(files.stat(path))).size
    data = await _in_time(files.read(path, 0, MOST_PREVIEW))
    kind = picture(data)
    return visit.page(
        "preview",
        title=f"{visit.name}, {path}",
        name=visit.name,
        path=path,
        folder=path.rpartition("/")[0],
        size=size,
        kind=kind,
        text="" if kind or b"\0" in data else data.decode(errors="backslashreplace"),
        cut=size > len(data),
    )


async def _file(visit: Visit) -> Response:
    """As a download, whatever it contains; or as a picture, if it is one."""
    path = visit.request.query_params.get("path", "")
    data = await _in_time((await visit.runtime()).author.files.read(path))
    if visit.request.query_params.get("as") == "picture" and (kind := picture(data)):
        return Response(data, headers=JAIL_HEADERS, media_type=kind)
    stored = {"content-disposition": "attachment", "content-type": "application/octet-stream"}
    return Response(data, headers=JAIL_HEADERS | stored)


def picture(data: bytes) -> str:
    """The MIME type of a picture by how it begins; empty for anything else."""
    return next((kind for kind, begin in _BEGINNINGS.items() if re.match(begin, data, re.DOTALL)), "")


async def _in_time(asked: Awaitable[Answer]) -> Answer:
    """Files of the working directory are read between cells. Raises UnavailableError while one runs."""
    try:
        return await asyncio.wait_for(asked, PATIENCE)
    except TimeoutError:
        raise UnavailableError(
            "a cell is running, and files are read when it has ended; interrupt it, or try again"
        ) from None


async def _run(visit: Visit) -> Response:
    code = (await visit.form()).get("code", "")
    task = visit.cells.begin(await visit.runtime(), code)
    done, _ = await asyncio.wait((task,), timeout=PATIENCE)
    if done:
        return redirect(
            address(visit.name, task.result().step)
        )  # raises the reason why the cell could not run
    return redirect(address(visit.name))


async def _interrupt(visit: Visit) -> Response:
    await visit.form()
    await (await visit.runtime()).owner.interrupt()
    return redirect(address(visit.name))


async def _snapshot(visit: Visit) -> Response:
    label = (await visit.form()).get("label", "").strip()
    await (await visit.runtime()).author.snapshot(label or None)
    return redirect(address(visit.name))


async def variables_of(runtime: OpenRuntime) -> Sequence[VariableInfo] | None:
    """What it holds, which is in its record from then on; None while a cell uses the namespace."""
    try:
        return await asyncio.wait_for(runtime.author.describe(), PATIENCE)
    except TimeoutError:
        return None


ROUTES: Final[tuple[PageRoute, ...]] = (
    ("GET", "/runtimes/{runtime}", _runtime),
    ("GET", "/runtimes/{runtime}/files", _files),
    ("GET", "/runtimes/{runtime}/file", _file),
    ("GET", "/runtimes/{runtime}/preview", _preview),
    ("GET", "/runtimes/{runtime}/live", _live),
    ("POST", "/runtimes/{runtime}/run", _run),
    ("POST", "/runtimes/{runtime}/interrupt", _interrupt),
    ("POST", "/runtimes/{runtime}/snapshots", _snapshot),
)
