"""Holds back what a durable runtime did from whoever asked, until it is stored.

An outcome comes on the reactor's thread, which must not wait: it is queued, a thread stores the state of the jail
that it came from, and then its listener hears of it. What came meanwhile shares the next checkpoint.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.hosted.refill import Source
from cenote_worker.results import ExecutionResult, Rollback, StreamName
from cenote_worker.supervisor.edge import DoneReply
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

_log = logging.getLogger("cenote.hosted")

Secure = Callable[[Supervisor], tuple[str, ...]]
"""Stores the state of a jail; gives news for whoever ran a cell. Raises whatever keeps it from being stored."""

Settled = Callable[[str, int], None]
"""Told of each call with a key that the state of its jail has from now on: the key, and its step, 0 for none."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An outcome on its way."""

    listener: Listener
    outcome: Outcome
    source: Source


class Acknowledger:
    """One runtime's. Its thread starts with the first outcome and ends with `close`."""

    def __init__(self, secure: Secure, settled: Settled) -> None:
        self._secure = secure
        self._settled = settled
        self._queue: SimpleQueue[_Held | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(self, listener: Listener, outcome: Outcome, source: Source, key: str) -> None:
        """The listener hears of it once it is stored, or of a NotDurableError. Never blocks."""
        if key:
            self._settled(key, outcome.step if isinstance(outcome, ExecutionResult) else 0)
        held = _Held(listener, outcome, source)
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="cenote-durable", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # nobody else would ever answer it
                    _refuse([held], error)
                    return
                self._thread = thread
        self._queue.put(held)

    def close(self) -> None:
        """What is held is still answered."""
        self._queue.put(None)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, over = self._more(first)
            self._answer(batch)
            if over:
                return

    def _more(self, first: _Held) -> tuple[list[_Held], bool]:
        """What waits as well, and whether it was the last."""
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
            except Exception as error:  # noqa: BLE001  (nobody else would ever answer them)
                _refuse(theirs, error)
                continue
            for held in theirs:
                _tell(held, _with_news(held.outcome, news))


def _refuse(batch: list[_Held], error: Exception) -> None:
    for held in batch:
        given = None if isinstance(held.outcome, DoneReply) else held.outcome
        _tell(held, NotDurableError(given, str(error) or type(error).__name__))


def _tell(held: _Held, outcome: Outcome) -> None:
    """A listener that fails keeps no other one from the answers that come after it."""
    try:
        held.listener.done(outcome)
    except Exception:  # noqa: BLE001  (whatever it is: this thread answers all that come after it)
        _log.exception("an outcome could not be passed on")


class Durable:
    """Passes on what happens; what changed the namespace, once that is stored."""

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
