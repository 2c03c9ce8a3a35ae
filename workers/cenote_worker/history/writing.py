"""Events on their way into a store: written behind the cells, so that none waits for a disk."""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cenote_security.errors import CenoteError, HistoryUnavailableError
from cenote_worker.history.events import Event
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.history.store import HistoryStore

MAX_WAITING: Final = 10_000
"""Events that wait for the store. With more of them it is given up: a disk must not stop cells."""

_BATCH: Final = 500
"""Events of one transaction."""

_LINGER: Final = 0.05
"""Seconds that an event waits for others of its transaction, which costs a millisecond however few it has."""

_log = logging.getLogger("cenote.history")


@dataclass(frozen=True, slots=True)
class _Added:
    position: int
    event: Event


@dataclass(frozen=True, slots=True)
class _Shed:
    position: int
    record: StepRecord


@dataclass(frozen=True, slots=True)
class _Flush:
    done: threading.Event = field(default_factory=threading.Event)


_Item = _Added | _Shed | _Flush | None


class WriteBehind:
    """The Keep of a History that a store keeps. The store is this one's from now on.

    A store that fails is not written to any more: a history with a gap would be no history. `flush` says so.
    """

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._queue: queue.Queue[_Item] = queue.Queue(MAX_WAITING)
        self._failure: CenoteError | None = None
        self._closed = False
        self._urgent = threading.Event()
        """Set behind what somebody waits for."""
        self._thread = threading.Thread(target=self._run, name="cenote-history", daemon=True)
        self._thread.start()

    def add(self, position: int, event: Event) -> None:
        self._put(_Added(position, event))

    def shed(self, position: int, record: StepRecord) -> None:
        self._put(_Shed(position, record))

    def flush(self) -> None:
        """Waits until everything so far is written. Raises what the store raised."""
        if not self._closed:
            item = _Flush()
            self._queue.put(item)
            self._urgent.set()
            item.done.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Writes what waits, and closes the store. Closing twice is fine. Never raises: see the log, or `flush`."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._urgent.set()
            self._thread.join()
            self._store.close()

    def _put(self, item: _Item) -> None:
        if self._closed or self._failure is not None:
            return
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._fail(HistoryUnavailableError(self._store.place, f"{MAX_WAITING} events wait to be written"))

    def _run(self) -> None:
        going_on = True
        while going_on:
            batch = [self._queue.get()]
            if self._urgent.wait(_LINGER):
                self._urgent.clear()
            while len(batch) < _BATCH and batch[-1] is not None:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            going_on = None not in batch
            self._write(batch)

    def _write(self, batch: list[_Item]) -> None:
        added = [(item.position, item.event) for item in batch if isinstance(item, _Added)]
        shed = [(item.position, item.record) for item in batch if isinstance(item, _Shed)]
        try:
            if (added or shed) and self._failure is None:
                self._store.write(added, shed)
        except Exception as error:  # noqa: BLE001  (whatever it is, whoever flushes must not wait for ever)
            self._fail(
                error
                if isinstance(error, CenoteError)
                else HistoryUnavailableError(self._store.place, str(error))
            )
        for item in batch:
            if isinstance(item, _Flush):
                item.done.set()

    def _fail(self, failure: CenoteError) -> None:
        self._failure = failure
        _log.warning("steps are not written to their history any more: %s", failure)


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
