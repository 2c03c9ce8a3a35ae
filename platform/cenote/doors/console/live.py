"""Cells that pages have begun, and their output while they run, as server-sent events.

The output of cells that other clients run is not seen here: their pages show that a cell runs, and whose.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from cenote.doors.open_runtimes import OpenRuntime
from cenote.runtime import AsyncPythonRuntime, ExecutionResult
from cenote_security.errors import CenoteError
from cenote_security.printable import printable

MOST_LIVE: Final = 64_000
"""Characters of a running cell's output that are kept for pages; the step has all of it afterwards."""

EVERY: Final = 0.25
"""Seconds between two events with output."""

STATUS_EVERY: Final = 1.0
STREAM: Final = 60.0
"""Seconds of one stream. Browsers begin the next one where it ended, and are asked who they are again."""


@dataclass(eq=False)
class LiveCell:
    """A cell that a page has begun. length: characters so far, those that are not kept any more among them.

    number: unique in this process.
    """

    number: int
    kept: deque[tuple[str, str]] = field(default_factory=deque)
    length: int = 0
    held: int = 0

    def output(self, stream: str, text: str) -> None:
        """Keeps the end of it."""
        text = text[-MOST_LIVE:]
        self.kept.append((stream, text))
        self.length += len(text)
        self.held += len(text)
        while self.held > MOST_LIVE:
            self.held -= len(self.kept.popleft()[1])

    def since(self, position: int) -> list[tuple[str, str]]:
        """What has come after so many characters, by stream; what is not kept any more is left out."""
        found: list[tuple[str, str]] = []
        at = self.length - self.held
        for stream, text in self.kept:
            part = text[max(0, position - at) :]
            at += len(text)
            if part and found and found[-1][0] == stream:
                found[-1] = stream, found[-1][1] + part
            elif part:
                found.append((stream, part))
        return found


class LiveCells:
    """The cells that pages have begun; they outlive the requests."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._tasks = set[asyncio.Task[ExecutionResult]]()
        self._cells: WeakKeyDictionary[AsyncPythonRuntime, list[LiveCell]] = WeakKeyDictionary()
        """Of each runtime, those that have not ended, in the order in which they run."""

    def begin(self, runtime: OpenRuntime, code: str) -> asyncio.Task[ExecutionResult]:
        cell = LiveCell(next(self._numbers))
        task = asyncio.create_task(runtime.author.execute(code, on_output=cell.output))
        waiting = self._cells.setdefault(runtime.owner, [])
        waiting.append(cell)
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            waiting.remove(cell)
            if not task.cancelled():
                task.exception()  # its page has shown it, or the record does

        task.add_done_callback(ended)
        return task

    def of(self, runtime: OpenRuntime) -> LiveCell | None:
        """The first of them that has not ended: if a cell of the console runs there, it is this one."""
        return next(iter(self._cells.get(runtime.owner, ())), None)

    def interrupt(self) -> None:
        """Ends all of them."""
        for task in self._tasks:
            task.cancel()


async def events(runtime: OpenRuntime, cells: LiveCells, author: str, last: str) -> AsyncIterator[str]:
    """Server-sent events of the runtime, until no cell runs: `status`, `next`, `output`, `end`. Text is printable.

    author: of the console's cells. last: the id of the last event that the page has; empty for none.
    """
    try:
        async for event in _events(runtime, cells, author, last):
            yield event
    except CenoteError:
        yield _event("end", "")  # the page says why when it is loaded again


async def _events(runtime: OpenRuntime, cells: LiveCells, author: str, last: str) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    over, look = loop.time() + STREAM, loop.time()
    number, _, end = last.partition(".")
    position = int(end) if end.isascii() and end.isdigit() else 0
    running = False
    yield "retry: 1000\n\n"
    while loop.time() < over:
        cell = cells.of(runtime)
        if cell is not None and number != str(cell.number):
            number, position = str(cell.number), 0
            yield _event("next", "")
        if loop.time() >= look:
            look = loop.time() + STATUS_EVERY
            status = await runtime.owner.status()
            if status.step is None and cells.of(runtime) is None:
                break
            running = status.author == author
            yield _event("status", {"step": status.step, "author": status.author, "memory": status.memory})
        if cell is not None and running and cell.length > position:
            parts, position = cell.since(position), cell.length
            for stream, text in parts:
                shown = {"stream": stream, "text": printable(text, lines=True)}
                yield _event("output", shown, f"{number}.{position}")
        await asyncio.sleep(EVERY)
    else:
        return
    yield _event("end", "")


def _event(kind: str, data: object, id: str = "") -> str:
    """JSON has no line end, which would end the event."""
    return f"{f'id: {id}{chr(10)}' if id else ''}event: {kind}\ndata: {json.dumps(data)}\n\n"
