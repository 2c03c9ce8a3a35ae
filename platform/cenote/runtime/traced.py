"""Listeners that end the span of what they hear of, before the one that waits for it goes on."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cenote.trace_names import (
    AUTHOR,
    CPU,
    EXCEPTION_TYPE,
    OTHER_ERROR,
    OUTCOME,
    PEAK_MEMORY,
    STEP,
    TOOL_RESULT,
)
from cenote.tracing import Span
from cenote_worker.checkpoints.errors import result_in
from cenote_worker.results import ErrorInfo, ExecutionResult, StreamName
from cenote_worker.supervisor.requests import Listener, Outcome

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

    def __init__(self, listener: Listener, span: Span) -> None:
        self._listener = listener
        self._span = span

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self._span.end(type(outcome).__name__ if isinstance(outcome, Exception) else "")
        self._listener.done(outcome)


class TracedCell:
    """Of a cell. over: called when it is."""

    def __init__(self, listener: Listener, span: Span, over: Callable[[], None]) -> None:
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


def _describe(span: Span, result: ExecutionResult) -> None:
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
def ended_if_raised(span: Span) -> Iterator[None]:
    """Nothing was queued then, and nothing else ends it."""
    try:
        yield
    except BaseException as error:
        span.end(type(error).__name__)
        raise
