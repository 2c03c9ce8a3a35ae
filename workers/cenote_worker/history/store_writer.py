"""Writes events into a store in the background, so that no cell waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from cenote_security.errors import CenoteError, HistoryTakenError, HistoryUnavailableError
from cenote_worker.history.events import Event
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.history.store import HistoryStore

MAX_WAITING: Final = 10_000
"""Events that wait for the store. Beyond that the store is given up: a disk must not stop cells."""

PATIENCE: Final = 30.0
"""Seconds that `flush` and `close` wait for a store that does not answer, such as a server that hangs."""

_AGAIN: Final = 2.0
"""Seconds until a failed store is tried again, unless `flush` or `close` is called before."""

_BATCH: Final = 500
"""Events of one transaction."""

_LINGER: Final = 0.05
"""Seconds that an event waits for others to share its transaction, which costs a millisecond for any number."""

_log = logging.getLogger("cenote.history")


@dataclass(frozen=True, slots=True)
class _Added:
    position: int
    event: Event


@dataclass(frozen=True, slots=True)
class _Shed:
    position: int
    record: StepRecord


_Item = _Added | _Shed


class WriteBehind:
    """The EventSink of a History with a store. It owns the store.

    Events that the store fails to write wait in order and are tried again: a disk may have room again, a server be
    back. A store that another writer has claimed, or for which too much waits, is given up: a history must not have
    gaps.
    """

    def __init__(self, store: HistoryStore, patience: float = PATIENCE) -> None:
        """patience: see PATIENCE."""
        self._store = store
        self._patience = patience
        self._about = {"runtime": store.runtime}
        """What lines of the log are about."""
        self._changed = threading.Condition()
        self._waiting: deque[_Item] = deque()
        """Oldest first. An item stays here until it is written."""
        self._written = 0
        """Number of items written so far."""
        self._wanted = 0
        """Number of items that are to be written without lingering, counted as `_written`."""
        self._begun = self._failed = 0
        """Numbers of the last attempt to write, and of the last one that failed."""
        self._failure: CenoteError | None = None
        """The error of the last attempt, if it failed."""
        self._given_up = self._closed = False
        self._thread = threading.Thread(target=self._run, name="cenote-history", daemon=True)
        self._thread.start()

    def add(self, position: int, event: Event) -> None:
        self._put(_Added(position, event))

    def shed(self, position: int, record: StepRecord) -> None:
        self._put(_Shed(position, record))

    def flush(self) -> None:
        """Waits until everything so far is written. Raises the error that prevents it."""
        with self._changed:
            wanted, asked = self._written + len(self._waiting), self._begun
            self._wanted = wanted
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: (
                    self._given_up
                    or self._written >= wanted
                    or self._failed > asked
                    or not self._thread.is_alive()
                ),
                self._patience,
            )
            if self._given_up or self._written < wanted:
                raise self._failure or self._no_answer()

    def close(self) -> None:
        """Writes what waits, and closes the store. Closing twice is fine. Never raises: see the log, or `flush`."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._thread.join(self._patience)
        if self._thread.is_alive():  # the thread is in a call that does not end: it owns the store until then
            self._failure = self._no_answer()
        else:
            self._store.close()
        if self._waiting:
            _log.error(
                "%d events are missing in a history: %s", len(self._waiting), self._failure, extra=self._about
            )

    def _put(self, item: _Item) -> None:
        with self._changed:
            if self._closed or self._given_up:
                return
            self._waiting.append(item)
            if len(self._waiting) > MAX_WAITING:
                reason = f"{MAX_WAITING} events wait to be written: {self._failure or 'it is slow'}"
                self._give_up(HistoryUnavailableError(self._store.place, reason))
            self._changed.notify_all()

    def _give_up(self, failure: CenoteError) -> None:
        self._given_up, self._failure = True, failure
        _log.error("steps are not written to their history any more: %s", failure, extra=self._about)

    def _no_answer(self) -> HistoryUnavailableError:
        return HistoryUnavailableError(self._store.place, f"no answer for {self._patience:g} seconds")

    # -- the thread --

    def _run(self) -> None:
        while batch := self._next():
            again = self._failure is not None
            try:
                # A transaction that failed may have been carried out.
                self._write(batch, self._store.size() if again else 0)
            except Exception as error:  # noqa: BLE001  (any error: `flush` must not wait for ever)
                self._has_failed(error)
            else:
                self._has_written(len(batch), again)

    def _next(self) -> list[_Item]:
        """The items to be written now; none when the thread shall end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._changed.wait_for(
                lambda: self._closed or self._given_up or self._wanted > self._written,
                _LINGER if self._failure is None else _AGAIN,
            )
            if self._given_up:
                return []
            self._begun += 1
            return list(islice(self._waiting, _BATCH))

    def _write(self, batch: list[_Item], known: int) -> None:
        """known: how many events the store has already."""
        added = [(each.position, each.event) for each in batch if isinstance(each, _Added)]
        shed = [(each.position, each.record) for each in batch if isinstance(each, _Shed)]
        self._store.write([each for each in added if each[0] >= known], shed)

    def _has_written(self, number: int, again: bool) -> None:
        with self._changed:
            for _ in range(number):
                self._waiting.popleft()
            self._written += number
            if not self._given_up:
                self._failure = None
            self._changed.notify_all()
        if again:
            _log.warning("steps are written to the history in %r again", self._store.place, extra=self._about)

    def _has_failed(self, error: Exception) -> None:
        failure = error if isinstance(error, CenoteError) else None
        failure = failure or HistoryUnavailableError(self._store.place, str(error))
        with self._changed:
            if isinstance(failure, HistoryTakenError):
                self._give_up(failure)
            elif not self._given_up:
                if self._failure is None:
                    _log.warning("steps wait to be written to their history: %s", failure, extra=self._about)
                self._failure = failure
                self._given_up = self._closed  # there will be no retry
            self._failed, self._wanted = self._begun, 0
            self._changed.notify_all()


def open_history(place: str | Path, runtime: str) -> History:
    """The history of a runtime in a database, going on there; see HistoryStore for places and errors."""
    store = HistoryStore(place, runtime)
    keep = WriteBehind(store)
    history = History(keep, store.id)
    try:
        history.read(store.events())
    except BaseException:
        keep.close()
        raise
    return history
