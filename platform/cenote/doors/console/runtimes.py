"""Pages of runtimes: all of them, one with its steps and variables, its files; and what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from cenote.doors.console.session import PageRoute, Visit, address, redirect
from cenote.doors.console.steps import JAIL_HEADERS
from cenote.doors.open_runtimes import OpenRuntime
from cenote_worker.execution.results import VariableInfo

STEPS_OF_A_PAGE: Final = 100

PATIENCE: Final = 5.0
"""Seconds that a page waits for a namespace, or for a cell that it has begun."""


async def _fleet(visit: Visit) -> Response:
    sought = visit.request.query_params.get("q", "")
    listed = [one for one in await visit.door.listed() if sought.lower() in one.name.lower()]
    return visit.page("fleet", title="Runtimes", runtimes=listed, sought=sought)


async def _runtime(visit: Visit) -> Response:
    runtime = await visit.runtime()
    state, status = await asyncio.gather(runtime.state(), runtime.owner.status())
    steps = list(state.history)
    last = visit.request.query_params.get("before", "")
    before = int(last) if last.isascii() and last.isdigit() else len(steps)
    shown = steps[max(0, before - STEPS_OF_A_PAGE) : before]
    return visit.page(
        "runtime",
        title=visit.name,
        name=visit.name,
        steps=shown[::-1],
        earlier=max(0, before - STEPS_OF_A_PAGE),
        count=len(steps),
        head=state.head,
        jail=status,
        variables=None if status.step is not None else await _variables(runtime),
        snapshots=() if status.step is not None else await runtime.owner.snapshots(),
    )


async def _files(visit: Visit) -> Response:
    path = visit.request.query_params.get("path", "")
    entries = await (await visit.runtime()).author.files.list(path)
    return visit.page(
        "files",
        title=f"{visit.name}, files{f' in {path}' if path else ''}",
        name=visit.name,
        folder=f"{path.rstrip('/')}/" if path else "",
        entries=entries,
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
    ("GET", "/", _fleet),
    ("GET", "/runtimes/{runtime}", _runtime),
    ("GET", "/runtimes/{runtime}/files", _files),
    ("GET", "/runtimes/{runtime}/file", _file),
    ("POST", "/runtimes/{runtime}/run", _run),
    ("POST", "/runtimes/{runtime}/interrupt", _interrupt),
    ("POST", "/runtimes/{runtime}/snapshots", _snapshot),
)
