"""Delays the outcomes of a durable runtime until the state that they report is stored.

An outcome comes on the reactor's thread, which must not wait: it is queued, a thread stores the state of the jail
that it came from, and then its listener gets it. Outcomes that came meanwhile share the next checkpoint.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.execution.results import ExecutionResult, Rollback, StreamName
from cenote_worker.runtime.state.state_source import Source
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

_log = logging.getLogger("cenote.hosted")

Secure = Callable[[Supervisor], tuple[str, ...]]
"""Stores the state of a jail; returns news for clients that ran a cell. Raises the error of a failed store."""

Patience = Callable[[], float]

AtRest = Callable[[], bool]
"""Called when no outcome has come for a while, until it gives True."""

Settled = Callable[[str, int], None]
"""Called with each keyed call that is part of its jail's state from now on: the key, and its step, 0 for none."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An outcome on its way. context: of its cell, which lines of the log are about."""

    listener: Listener
    outcome: Outcome
    source: Source
    context: Context = field(default_factory=copy_context)


class Acknowledger:
    """Of one runtime. Its thread starts with the first outcome and ends with `close`."""

    def __init__(
        self,
        secure: Secure,
        settled: Settled,
        at_rest: AtRest = lambda: True,
        patience: Patience = lambda: 0.0,
    ) -> None:
        """patience: the seconds after which `at_rest` is called."""
        self._secure = secure
        self._settled = settled
        self._at_rest = at_rest
        self._patience = patience
        self._queue: SimpleQueue[_Held | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(self, listener: Listener, outcome: Outcome, source: Source, key: str) -> None:
        """The listener gets the outcome once it is stored, or a NotDurableError. Never blocks."""
        if key:
            self._settled(key, outcome.step if isinstance(outcome, ExecutionResult) else 0)
        held = _Held(listener, outcome, source)
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="cenote-durable", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # nothing else would ever answer it
                    _refuse([held], error)
                    return
                self._thread = thread
        self._queue.put(held)

    def close(self) -> None:
        """Outcomes in the queue are still answered."""
        self._queue.put(None)

    def _work(self) -> None:
        wait: float | None = None
        while True:
            try:
                first = self._queue.get(timeout=wait)
            except Empty:
                wait = None if self._at_rest() else self._patience()
                continue
            if first is None:
                return
            batch, over = self._more(first)
            self._answer(batch)
            if over:
                return
            wait = self._patience()

    def _more(self, first: _Held) -> tuple[list[_Held], bool]:
        """All outcomes that wait as well, and whether it was the last batch."""
        batch = [first]
        while True:
            try:
                held = self._queue.get_nowait()
            except Empty:
                return batch, False
            if held is None:
                return batch, True
            batch.append(held)

    def _answer(self, batch: list[_Held]) -> None:
        held_of = [(held, held.source()) for held in batch]
        for supervisor in dict.fromkeys(supervisor for _, supervisor in held_of):
            theirs = [held for held, whose in held_of if whose is supervisor]
            try:
                news = self._secure(supervisor)
            except Exception as error:  # noqa: BLE001  (nothing else would ever answer them)
                _refuse(theirs, error)
                continue
            for held in theirs:
                _tell(held, _with_news(held.outcome, news))


def _refuse(batch: list[_Held], error: Exception) -> None:
    for held in batch:
        given = None if isinstance(held.outcome, DoneReply) else held.outcome
        _tell(held, NotDurableError(given, str(error) or type(error).__name__))


def _tell(held: _Held, outcome: Outcome) -> None:
    """A listener that fails does not keep later answers from other listeners."""
    try:
        held.context.run(held.listener.done, outcome)
    except Exception:  # noqa: BLE001  (any error: this thread gives all later answers)
        held.context.run(_log.exception, "an outcome could not be passed on")


class DurableListener:
    """Passes events on; delays outcomes that changed the namespace until that is stored."""

    def __init__(self, listener: Listener, acknowledger: Acknowledger, source: Source, key: str) -> None:
        self._listener = listener
        self._acknowledger = acknowledger
        self._source = source
        self._key = key

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, DoneReply | Rollback) or (
            isinstance(outcome, ExecutionResult) and outcome.state == "kept"
        ):
            self._acknowledger.hold(self._listener, outcome, self._source, self._key)
        else:
            self._listener.done(outcome)


def _with_news(outcome: Outcome, news: tuple[str, ...]) -> Outcome:
    if not news or not isinstance(outcome, ExecutionResult):
        return outcome
    return replace(outcome, news=(*outcome.news, *news))
