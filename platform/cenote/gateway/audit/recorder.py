"""Many callers, one disk: whatever comes in while a write is under way shares the next one.

A sync takes milliseconds, a cell may take less. So a caller chooses: it waits for the future, and then what it does
is on record before it is done; or it does not, and a power cut may take the last moments of the record.

Nothing that was taken in is lost while this process lives, and while the log cannot be written nothing is taken in:
what is not recorded must not be done.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Self

from cenote.gateway.audit.chain import Mark
from cenote.gateway.audit.entry import Event, check_event
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.errors import AuditUnavailableError

log = logging.getLogger("cenote.gateway")

_BATCH: Final = 256
DEFAULT_BACKLOG: Final = 20_000
"""Events. Seconds of a busy disk; more would be memory that a flood fills."""

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    event: Event
    done: Future[Mark] = field(default_factory=Future)


class Recorder:
    """Writes a log on a thread of its own. The log stays its maker's, to close after this."""

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

    def record(self, event: Event) -> Future[Mark]:
        """Takes an event in, at once; from any thread.

        The future is done when it is on the disk, with the mark of that moment. It cannot be cancelled; it raises
        AuditUnavailableError if all ends before. Raises AuditUnavailableError while the log cannot be written, or too
        many events wait for it; UsageError for an event that is too large.
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
        """Why nothing can be written now, if that is so."""
        with self._changed:
            return self._problem

    @property
    def waiting(self) -> int:
        """Events that are not on the disk yet."""
        with self._changed:
            return len(self._waiting)

    def close(self) -> None:
        """Writes what waits, and ends. Closing twice is fine."""
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
        """What to write now; nothing at the end."""
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
        """Waits a while before the next attempt; at the end there is none."""
        with self._changed:
            self._problem = error.reason
            if not self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS):
                return False
            for item in self._waiting:
                item.done.set_exception(error)
            return True
