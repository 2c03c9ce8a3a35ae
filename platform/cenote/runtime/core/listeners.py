"""Ways to wait for a jail: blocking a thread, or awaiting in an event loop; and listeners that end a span first.

A traced listener ends the span of its call before the caller that waits for the call goes on.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

from cenote.tracing import (
    AUTHOR,
    CPU,
    EXCEPTION_TYPE,
    OTHER_ERROR,
    OUTCOME,
    PEAK_MEMORY,
    STEP,
    TOOL_RESULT,
    TraceSpan,
)
from cenote_security.errors import UsageError
from cenote_worker.checkpoints.errors import result_in
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, StreamName
from cenote_worker.process.threads import Backlog
from cenote_worker.supervisor.frame_parser import FileReply, ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome, SharedReply

OnOutput = Callable[[StreamName, str], None]
"""Called with ("stdout" | "stderr", text) while a cell runs, in the thread or loop of the caller."""

LOOK_UP: Final = 0.25
"""Seconds that a thread sleeps at most: a Ctrl-C that arrives just before it goes to sleep does not wake it."""

BACKLOG: Final = 1 << 20
"""Characters of output that may wait for a slow `on_output` before the jail is made to wait."""


def _checked(on_output: OnOutput | None) -> OnOutput | None:
    """Raises UsageError for what cannot be called, and for coroutine functions, which would not be awaited."""
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
        with contextlib.suppress(RuntimeError):  # the loop was closed: no caller waits any more
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
        elif isinstance(outcome, ValueReply | FileReply):  # its caller was cancelled and cannot close it
            outcome.content.close()
        elif isinstance(outcome, SharedReply):
            outcome.holding.release()


_KINDS: Final = frozenset(
    {
        *(
            name
            for name, kind in vars(builtins).items()
            if isinstance(kind, type) and issubclass(kind, BaseException)
        ),
        *("CellCrashed", "RuntimeLost", "SecurityError"),
    }
)
"""Of errors of cells: Python's, and those that Cenote gives."""


class Traced:
    """Of a call that is no cell."""

    def __init__(self, listener: Listener, span: TraceSpan) -> None:
        self._listener = listener
        self._span = span

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self._span.end(type(outcome).__name__ if isinstance(outcome, Exception) else "")
        self._listener.done(outcome)


class TracedCell:
    """Of a cell. over: called when it is."""

    def __init__(self, listener: Listener, span: TraceSpan, over: Callable[[], None]) -> None:
        self._listener = listener
        self._span = span
        self._over = over

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self._over()
        result = result_in(outcome)
        if result is not None:
            _describe(self._span, result)
            self._span.end("" if result.error is None else _kind(result.error))
        else:
            self._span.end(type(outcome).__name__)
        self._listener.done(outcome)


def _describe(span: TraceSpan, result: ExecutionResult) -> None:
    span.set(STEP, result.step)
    span.set(AUTHOR, result.author)
    kept = result.state == "kept"
    span.set(OUTCOME, ("ok" if result.success else "failed") if kept else result.state)
    span.set(CPU, result.usage.cpu)
    span.set(PEAK_MEMORY, result.usage.peak_memory)
    span.content(TOOL_RESULT, result.stdout + (result.value or ""))
    if result.error is not None:
        span.content(EXCEPTION_TYPE, result.error.type)


def _kind(error: ErrorInfo) -> str:
    """A cell makes classes of any name: those that are not known may be words of its own."""
    return error.type if error.type in _KINDS else OTHER_ERROR


@contextmanager
def ended_if_raised(span: TraceSpan) -> Iterator[None]:
    """Nothing was queued then, and nothing else ends it."""
    try:
        yield
    except BaseException as error:
        span.end(type(error).__name__)
        raise
