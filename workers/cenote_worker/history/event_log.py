"""A history in its own file, for a successor process: each event is in the file before it is announced.

Each runtime of a platform has one. A database per runtime would cost each of them a thread, and each step a
millisecond; no lookups are needed here, a successor reads the file from its beginning.

    magic, id | length, sum, position, event | length, sum, position, event | ...

An entry whose position exists already replaces the earlier one: this is how results are shed. What was added survives
the death of this process at any instant; a power failure may lose the last entries, unless `flush` has returned.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import xxhash

from cenote_security.errors import (
    HistoryTakenError,
    HistoryUnavailableError,
    MalformedValueError,
    NewerHistoryError,
)
from cenote_worker.history.events import Event
from cenote_worker.history.history import History
from cenote_worker.history.messages import from_event, to_event
from cenote_worker.history.step import StepRecord

_FORMAT: Final = 1
_MAGIC: Final = b"CENOTEH%d" % _FORMAT
_FIRST: Final = struct.Struct("<8s32s")
_ENTRY: Final = struct.Struct("<QQQ")

MAX_WAITING: Final = 16 * 2**20
"""Bytes of events that wait for room on the disk. Beyond that the file is given up."""

DAMAGED: Final = ".damaged"
"""Suffix of a file that was set aside."""

_log = logging.getLogger("cenote.history")


class EventLog:
    """The EventSink of a History. One writer at a time: it holds a kernel lock, which ends with its process.

    Entries that do not fit on the disk wait, and are tried again with the next entry and at `flush`. When too much
    waits, the file is given up for good: a history must not have gaps. `flush` then raises.
    """

    def __init__(self, path: Path, runtime: str = "") -> None:
        """Makes a missing file. Raises HistoryTakenError while it has a writer, HistoryUnavailableError.

        runtime: that lines of the log are about.
        """
        self._path = path
        self.about: Final = {"runtime": runtime}
        """What lines of the log are about."""
        self._file = _opened(path)
        self._end = 0
        """The end of the complete entries in the file."""
        self._lock = threading.Lock()
        """Guards the attributes below: `flush` is called on other threads than events."""
        self._waiting = bytearray()
        """What is to be written after that."""
        self._failure: HistoryUnavailableError | None = None
        """Why something waits, or why the file was given up."""
        self._given_up = False

    def read(self) -> tuple[str, list[Event]]:
        """The id of the history, and its events; once, before anything is added.

        An incomplete entry at the end is cut off. Raises MalformedValueError for a damaged file, NewerHistoryError
        for one with anything that this version does not know, HistoryUnavailableError.
        """
        with _explained(self._path):
            data = memoryview(self._path.read_bytes())
            if len(data) < _FIRST.size:
                return self._begun(), []
            magic, id = _FIRST.unpack_from(data)
            if magic != _MAGIC:
                self._refuse(magic)
            events: dict[int, Event] = {}
            end = _FIRST.size
            for position, event, behind in _entries(data):
                if position > len(events):
                    raise MalformedValueError(f"event {len(events)} is missing")
                events[position], end = self._event(event), behind
            self._cut(end)
            return id.decode("ascii", "replace"), list(events.values())

    def set_aside(self) -> str:
        """Begins another file, and leaves this one beside it. Gives the id of the new history."""
        with _explained(self._path):
            self._path.rename(self._path.with_name(self._path.name + DAMAGED))
        self.close()
        self._file = _opened(self._path)
        return self._begun()

    def _begun(self) -> str:
        id = uuid.uuid4().hex
        self._cut(0)
        self._append(_FIRST.pack(_MAGIC, id.encode()))
        return id

    def _refuse(self, magic: bytes) -> None:
        number = magic.removeprefix(_MAGIC[:-1])
        if number.isdigit() and len(number) == 1:
            raise NewerHistoryError(str(self._path), int(number), _FORMAT)
        raise MalformedValueError("it is no history")

    def _event(self, data: bytes) -> Event:
        """Parses an entry with a valid checksum. If it cannot be parsed, a newer version has written it."""
        try:
            return to_event(data)
        except MalformedValueError as error:
            raise NewerHistoryError(str(self._path), f"{_FORMAT} with {error}", _FORMAT) from None

    def _append(self, data: bytes | bytearray) -> None:
        """Appends all of it, or nothing. Raises OSError."""
        if self._failure is not None:
            self._cut(self._end)
        written = os.write(self._file, data)
        if written != len(data):
            self._cut(self._end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._end += written

    def _cut(self, end: int) -> None:
        os.ftruncate(self._file, end)
        self._end = end

    # -- EventSink --

    def add(self, position: int, event: Event) -> None:
        data = from_event(event)
        with self._lock:
            if not self._given_up and self._file >= 0:
                self._waiting += _ENTRY.pack(len(data), _sum(position, data), position) + data
                self._write()

    def _write(self) -> None:
        """Writes what waits. What cannot be written goes on waiting."""
        try:
            self._append(self._waiting)
        except OSError as error:
            self._has_failed(error)
        else:
            if self._failure is not None:
                _log.warning("steps are written to the history %s again", self._path, extra=self.about)
            self._failure = None
            self._waiting.clear()

    def _has_failed(self, error: OSError) -> None:
        failure = HistoryUnavailableError(str(self._path), error.strerror or str(error))
        if self._failure is None:
            _log.warning("steps wait to be written to their history: %s", failure, extra=self.about)
        self._failure = failure
        if len(self._waiting) > MAX_WAITING:
            self._given_up = True
            self._waiting.clear()
            _log.error("steps are not written to their history any more: %s", failure, extra=self.about)

    def shed(self, position: int, record: StepRecord) -> None:
        self.add(position, record)

    def flush(self) -> None:
        """Waits until everything so far is on disk. Raises HistoryUnavailableError when that is not possible."""
        with self._lock:
            if self._waiting:
                self._write()
            if self._failure is not None:
                raise self._failure
            if self._file >= 0:
                with _explained(self._path):
                    os.fdatasync(self._file)

    def close(self) -> None:
        """Writes what waits, if that is possible now. Closing twice is fine."""
        with self._lock:
            if self._waiting:
                self._write()
            if lost := len(self._waiting):
                self._given_up = True
                self._waiting.clear()
                _log.error(
                    "%d bytes of events are missing in a history: %s", lost, self._failure, extra=self.about
                )
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)


def _entries(data: memoryview) -> Iterator[tuple[int, bytes, int]]:
    """Position and event of each that is whole, and where the next one begins. Raises MalformedValueError.

    An incomplete entry ends the iteration: its writer was killed, or the disk was full.
    """
    at = _FIRST.size
    while at + _ENTRY.size <= len(data):
        length, total, position = _ENTRY.unpack_from(data, at)
        behind = at + _ENTRY.size + length
        if behind > len(data):
            return
        event = bytes(data[at + _ENTRY.size : behind])
        if total != _sum(position, event):
            # At the power failure the file had grown, but its content was not written yet.
            if not any(data[at:]):
                return
            raise MalformedValueError(
                f"the entry at byte {at} does not have the sum that was written with it"
            )
        yield position, event, behind
        at = behind


def _sum(position: int, event: bytes) -> int:
    return xxhash.xxh3_64_intdigest(event, position)


def _opened(path: Path) -> int:
    with _explained(path):
        path.parent.mkdir(
            mode=0o700, exist_ok=True
        )  # not those above it, which were moved away if they are missing
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise HistoryTakenError(str(path)) from None
    return file


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HistoryUnavailableError(str(path), error.strerror or str(error)) from error


def open_log(path: Path, runtime: str = "") -> History:
    """The history in a file, going on there; see EventLog.

    A damaged file is set aside and a new one begun; readers of the new one are told that steps are missing.
    """
    keep = EventLog(path, runtime)
    try:
        return _read(keep)
    except MalformedValueError as error:
        _log.error("the history %s is damaged and was set aside: %s", path, error, extra=keep.about)
        return History(keep, keep.set_aside())
    except BaseException:
        keep.close()
        raise


def _read(keep: EventLog) -> History:
    id, events = keep.read()
    history = History(keep, id)
    history.read(events)
    return history
