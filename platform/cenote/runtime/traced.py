"""Listeners that end the span of what they hear of, before whoever waits for it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cenote.trace_names import AUTHOR, CPU, OUTCOME, PEAK_MEMORY, STEP, TOOL_RESULT
from cenote.tracing import Span
from cenote_worker.checkpoints.errors import result_in
from cenote_worker.results import ExecutionResult, StreamName
from cenote_worker.supervisor.requests import Listener, Outcome


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
            self._span.end("" if result.error is None else result.error.type)
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


@contextmanager
def ended_if_raised(span: Span) -> Iterator[None]:
    """Nothing was queued then, and nobody else ends it."""
    try:
        yield
    except BaseException as error:
        span.end(type(error).__name__)
        raise
