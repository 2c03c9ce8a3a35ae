"""Cells that pages have begun; and the output of running cells, of whatever client, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final
from weakref import WeakKeyDictionary

from cenote.doors.open_runtimes import OpenRuntime
from cenote.runtime import AsyncPythonRuntime, ExecutionResult, LiveOutput
from cenote_security.errors import CenoteError
from cenote_security.printable import printable

EVERY: Final = 0.25
"""Seconds between two events with output."""

STATUS_EVERY: Final = 1.0
STREAM: Final = 60.0
"""Seconds of one stream. Browsers begin the next one where it ended, and are asked who they are again."""


class LiveCells:
    """The cells that pages have begun; they outlive the requests."""

    def __init__(self) -> None:
        self._cells: WeakKeyDictionary[AsyncPythonRuntime, set[asyncio.Task[ExecutionResult]]] = (
            WeakKeyDictionary()
        )
        """Of each runtime, those that have not ended."""

    def begin(self, runtime: OpenRuntime, code: str) -> asyncio.Task[ExecutionResult]:
        task = asyncio.create_task(runtime.author.execute(code))
        cells = self._cells.setdefault(runtime.owner, set())
        cells.add(task)

        def ended(_: object) -> None:
            cells.discard(task)
            if not task.cancelled():
                task.exception()  # its page has shown it, or the record does

        task.add_done_callback(ended)
        return task

    def waits(self, runtime: OpenRuntime) -> bool:
        """Whether one of them has not ended there."""
        return bool(self._cells.get(runtime.owner))

    def interrupt(self) -> None:
        """Ends all of them."""
        for task in [task for cells in self._cells.values() for task in cells]:
            task.cancel()


async def events(runtime: OpenRuntime, cells: LiveCells, last: str) -> AsyncIterator[str]:
    """Server-sent events of the runtime, until no cell runs: `status`, `next`, `missed`, `output`, `end`. Text is
    printable.

    last: the id of the last event that the page has; empty for none.
    """
    try:
        async for event in _events(runtime, cells, last):
            yield event
    except CenoteError:
        yield _event("end", "")  # the page says why when it is loaded again


async def _events(runtime: OpenRuntime, cells: LiveCells, last: str) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    over, look = loop.time() + STREAM, loop.time()
    seen = _seen(last)
    yield "retry: 1000\n\n"
    while loop.time() < over:
        found = await runtime.author.live_output(seen)
        if found.step is None and not cells.waits(runtime):
            break
        if loop.time() >= look:
            look = loop.time() + STATUS_EVERY
            memory = (await runtime.owner.status()).memory
            yield _event("status", {"step": found.step, "author": found.author, "memory": memory})
        if found.step is not None:
            if found.step != seen.step:
                yield _event("next", "")
            seen = found
            if found.missed:
                yield _event("missed", found.missed)
            for index, (stream, text) in enumerate(found.pieces, start=1):
                shown = {"stream": stream, "text": printable(text, lines=True)}
                is_last = index == len(found.pieces)
                yield _event("output", shown, f"{found.step}.{found.end}" if is_last else "")
        await asyncio.sleep(EVERY)
    else:
        return
    yield _event("end", "")


def _seen(last: str) -> LiveOutput:
    """What the page has, by an event's id; a browser may send any other text."""
    step, _, end = last.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (step, end)):
        return LiveOutput()
    return LiveOutput(step=int(step), end=int(end))


def _event(kind: str, data: object, id: str = "") -> str:
    """JSON has no line end, which would end the event."""
    return f"{f'id: {id}{chr(10)}' if id else ''}event: {kind}\ndata: {json.dumps(data)}\n\n"
