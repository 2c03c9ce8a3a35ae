"""Batches writes of many callers: events that arrive during a write share the next one.

The log has one writer, the gateway. The operator's commands leave events in the database; the gateway records them.
"""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Final, Self

from cenote.gateway.audit.entries import AuditEvent, Mark, check_event
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.errors import AuditUnavailableError
from cenote.gateway.store.database import Database

log = logging.getLogger("cenote.gateway")

_BATCH: Final = 256
DEFAULT_BACKLOG: Final = 20_000
"""Events. They take seconds of a busy disk; a larger limit would let a flood fill the memory."""

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    event: AuditEvent
    done: Future[Mark] = field(default_factory=Future)


class AuditRecorder:
    """Writes a log on a thread of its own. The caller closes the log, after this."""

    def __init__(self, log: AuditLog, *, backlog: int = DEFAULT_BACKLOG) -> None:
        """backlog: how many events may wait for the disk."""
        self._log = log
        self._backlog = backlog
        self._changed = threading.Condition()
        self._waiting: list[_Item] = []
        self._problem = ""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="cenote-audit", daemon=True)
        self._thread.start()

    def record(self, event: AuditEvent) -> Future[Mark]:
        """Accepts an event at once; from any thread.

        The future is done when the event is on the disk, with the mark of that moment. It cannot be cancelled; it
        raises AuditUnavailableError if the recorder ends before. Raises AuditUnavailableError while the log cannot be
        written, or too many events wait for it; UsageError for an event that is too large.
        """
        check_event(event)
        item = _Item(event=event)
        item.done.set_running_or_notify_cancel()
        with self._changed:
            if self._closing:
                raise AuditUnavailableError(self._log.folder, "it was closed")
            if self._problem:
                raise AuditUnavailableError(self._log.folder, self._problem)
            if len(self._waiting) >= self._backlog:
                raise AuditUnavailableError(self._log.folder, f"{self._backlog} entries wait for the disk")
            self._waiting.append(item)
            self._changed.notify()
            return item.done

    @property
    def problem(self) -> str:
        """Why nothing can be written now; empty if it can."""
        with self._changed:
            return self._problem

    @property
    def waiting(self) -> int:
        """Events that are not on the disk yet."""
        with self._changed:
            return len(self._waiting)

    def close(self) -> None:
        """Writes the waiting events, and ends. Closing twice is fine."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while batch := self._next():
            try:
                mark = self._log.append(*(item.event for item in batch))
            except Exception as error:
                if not isinstance(error, AuditUnavailableError):
                    log.exception("the audit log cannot be written")
                    error = AuditUnavailableError(self._log.folder, str(error))
                if self._is_over(error):
                    return
            else:
                self._acknowledge(batch, mark)

    def _next(self) -> list[_Item]:
        """The events to write now; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting[:_BATCH]

    def _acknowledge(self, batch: list[_Item], mark: Mark) -> None:
        with self._changed:
            self._problem = ""
            del self._waiting[: len(batch)]
        for item in batch:
            item.done.set_result(mark)

    def _is_over(self, error: AuditUnavailableError) -> bool:
        """Waits before the next attempt; returns True if the recorder ends, and there is none."""
        with self._changed:
            self._problem = error.reason
            if not self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS):
                return False
            for item in self._waiting:
                item.done.set_exception(error)
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    number: int
    event: AuditEvent


class Notices:
    """Events left by any process; the gateway takes them in order."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def leave(self, event: AuditEvent) -> None:
        """Stores an event: it is on the disk on return, and recorded once a gateway runs."""
        with self._database.transaction():
            row = self._database.row("SELECT COALESCE(MAX(number), 0) + 1 AS next FROM notices")
            assert row is not None
            sql = "INSERT INTO notices (number, event) VALUES (?, ?)"
            self._database.execute(sql, row["next"], json.dumps(asdict(event)))

    def hand_over(self, recorder: AuditRecorder) -> None:
        """Records the stored events. A crash in between records them twice, never not at all.

        Raises AuditUnavailableError; unrecorded events stay.
        """
        for notice in self._left():
            recorder.record(notice.event).result()
            self._database.execute("DELETE FROM notices WHERE number = ?", notice.number)

    def _left(self) -> list[_Notice]:
        rows = self._database.rows("SELECT number, event FROM notices ORDER BY number")
        return [_Notice(number=row["number"], event=AuditEvent(**json.loads(row["event"]))) for row in rows]
