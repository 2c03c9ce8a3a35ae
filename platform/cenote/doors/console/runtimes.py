"""Pages of runtimes: all of them, one with its steps and variables, its files; and what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from cenote.doors.console.session import PageRoute, Visit, address, page_number, redirect
from cenote.doors.console.steps import JAIL_HEADERS
from cenote.doors.open_runtimes import OpenRuntime
from cenote.harness.questions.provenance import LiveVariable
from cenote_worker.execution.results import VariableInfo

RUNTIMES_OF_A_PAGE: Final = 200

STEPS_OF_A_PAGE: Final = 100

MOST_VARIABLES: Final = 300
FILES_OF_A_PAGE: Final = 300

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
    state = await seen.state()
    status = await runtime.owner.status() if runtime is not None else None
    idle = runtime is not None and status is not None and status.step is None
    steps = state.history
    before = page_number(visit.request.query_params.get("before", ""))
    end = len(steps) if before is None else min(before, len(steps))
    begin = max(0, end - STEPS_OF_A_PAGE)
    variables: Sequence[VariableInfo | LiveVariable] | None = None
    if runtime is None:
        variables = (await asyncio.to_thread(state.at, state.head)).variables
    elif idle:
        variables = await _variables(runtime)
    return visit.page(
        "runtime",
        title=visit.name,
        name=visit.name,
        steps=steps[begin:end][::-1],
        earlier=begin,
        later=min(end + STEPS_OF_A_PAGE, len(steps)) if end < len(steps) else None,
        count=len(steps),
        head=state.head,
        jail=status,
        variables=variables[:MOST_VARIABLES] if variables is not None else None,
        more=max(0, len(variables or ()) - MOST_VARIABLES),
        snapshots=await runtime.owner.snapshots() if runtime is not None and idle else (),
    )


async def _files(visit: Visit) -> Response:
    path = visit.request.query_params.get("path", "")
    begin = page_number(visit.request.query_params.get("from", "")) or 0
    found = await (await visit.runtime()).author.files.list(path)
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


async def _file(visit: Visit) -> Response:
    """As a download, whatever it contains."""
    data = await (await visit.runtime()).author.files.read(visit.request.query_params.get("path", ""))
    stored = {"content-disposition": "attachment", "content-type": "application/octet-stream"}
    return Response(data, headers=JAIL_HEADERS | stored)


async def _run(visit: Visit) -> Response:
    code = (await visit.form()).get("code", "")
    runtime = (await visit.runtime()).author
    task = visit.cells.begin(runtime.execute(code))
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


async def _variables(runtime: OpenRuntime) -> Sequence[VariableInfo] | None:
    """None while a cell uses the namespace."""
    try:
        return await asyncio.wait_for(runtime.author.describe(), PATIENCE)
    except TimeoutError:
        return None


ROUTES: Final[tuple[PageRoute, ...]] = (
    ("GET", "/runtimes/{runtime}", _runtime),
    ("GET", "/runtimes/{runtime}/files", _files),
    ("GET", "/runtimes/{runtime}/file", _file),
    ("POST", "/runtimes/{runtime}/run", _run),
    ("POST", "/runtimes/{runtime}/interrupt", _interrupt),
    ("POST", "/runtimes/{runtime}/snapshots", _snapshot),
)
