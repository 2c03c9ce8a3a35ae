"""Two ways to wait for a jail: blocking a thread, or awaiting in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from cenote_security.errors import UsageError
from cenote_worker.backlog import Backlog
from cenote_worker.results import StreamName
from cenote_worker.supervisor.edge import FileReply, ValueReply
from cenote_worker.supervisor.requests import Outcome, SharedReply

OnOutput = Callable[[StreamName, str], None]
"""Called with ("stdout" | "stderr", text) while a cell runs, in the thread or loop of the caller."""

LOOK_UP: Final = 0.25
"""Seconds that a thread sleeps at most: a Ctrl-C that arrives just before it goes to sleep does not wake it."""

BACKLOG: Final = 1 << 20
"""Characters of output that may wait for a slow `on_output` before the jail is made to wait."""


def _checked(on_output: OnOutput | None) -> OnOutput | None:
    """Raises UsageError for what cannot be called, and for coroutine functions, which nobody would await."""
    if on_output is not None and (not callable(on_output) or inspect.iscoroutinefunction(on_output)):
        raise UsageError(
            "on_output is a plain function of (stream, text); an async one could fall behind its cell"
        )
    return on_output


class BlockingListener:
    """A Listener for a thread that waits."""

    def __init__(self, on_output: OnOutput | None = None) -> None:
        self._queue: SimpleQueue[Outcome | tuple[StreamName, str]] = SimpleQueue()
        self._backlog = Backlog(BACKLOG)
        self._on_output = _checked(on_output)

    def output(self, stream: StreamName, text: str) -> bool:
        if self._on_output is None:
            return True
        self._queue.put((stream, text))
        return self._backlog.add(len(text))

    def done(self, outcome: Outcome) -> None:
        self._queue.put(outcome)

    def wait(self, resume: Callable[[], None]) -> Outcome:
        """The outcome; calls `on_output` on this thread meanwhile."""
        while True:
            item = self._next()
            if not isinstance(item, tuple):
                return item
            assert self._on_output is not None
            try:
                self._on_output(*item)
            finally:
                if self._backlog.take(len(item[1])):
                    resume()

    def _next(self) -> Outcome | tuple[StreamName, str]:
        while True:
            with contextlib.suppress(Empty):
                return self._queue.get(timeout=LOOK_UP)


class AsyncListener:
    """A Listener for a coroutine that awaits."""

    def __init__(self, resume: Callable[[], None], on_output: OnOutput | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Outcome] = self._loop.create_future()
        self._backlog = Backlog(BACKLOG)
        self._resume = resume
        self._on_output = _checked(on_output)

    def output(self, stream: StreamName, text: str) -> bool:
        if self._on_output is None:
            return True
        self._post(self._deliver, stream, text)
        return self._backlog.add(len(text))

    def done(self, outcome: Outcome) -> None:
        self._post(self._settle, outcome)

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits any more
            self._loop.call_soon_threadsafe(callback, *args)

    def _deliver(self, stream: StreamName, text: str) -> None:
        try:
            if self._on_output is not None and not self.future.done():
                self._on_output(stream, text)
        except Exception as error:  # noqa: BLE001  (the caller's own callback failed: the caller shall know)
            self._on_output = None
            self.future.set_exception(error)
        finally:
            if self._backlog.take(len(text)):
                self._resume()

    def _settle(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)
        elif isinstance(outcome, ValueReply | FileReply):  # its caller was cancelled: nobody else closes it
            outcome.content.close()
        elif isinstance(outcome, SharedReply):
            outcome.holding.release()
