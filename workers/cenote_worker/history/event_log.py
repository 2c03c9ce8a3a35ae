"""A history in a file of its own: each event is in it before anybody hears of it, for whoever goes on with it.

A platform's runtimes have one each. A database per runtime would cost each of them a thread, and each step a
millisecond; nobody looks anything up in here, a successor reads it from its beginning.

    magic, id | length, sum, position, event | length, sum, position, event | ...

An entry of a position that is there already stands for the earlier one: so results are shed. What was added survives
the death of this process at any instant; a machine that loses its power may lose the last entries with it, which
`flush` waits for.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import xxhash

from cenote_security.errors import HistoryTakenError, HistoryUnavailableError, MalformedValueError
from cenote_worker.history.events import Event
from cenote_worker.history.history import History
from cenote_worker.history.messages import from_event, to_event
from cenote_worker.history.step import StepRecord

_MAGIC: Final = b"CENOTEH1"
_FIRST: Final = struct.Struct("<8s32s")
_ENTRY: Final = struct.Struct("<QQQ")

DAMAGED: Final = ".damaged"
"""Behind the name of a file that was set aside."""

_log = logging.getLogger("cenote.history")


class EventLog:
    """The Keep of a History. One writer at a time: it holds a lock of the kernel's, which is gone with its process.

    A file that fails is not written to any more: a history with a gap would be no history. `flush` says so.
    """

    def __init__(self, path: Path) -> None:
        """Makes what is missing. Raises HistoryTakenError while somebody writes it, HistoryUnavailableError."""
        self._path = path
        self._failure: HistoryUnavailableError | None = None
        self._file = _opened(path)

    def read(self) -> tuple[str, list[Event]]:
        """The id of the history, and its events; once, before anything is added.

        What its last writer did not come to the end of is cut off. Raises MalformedValueError for a damaged file,
        HistoryUnavailableError.
        """
        with _explained(self._path):
            data = memoryview(self._path.read_bytes())
            if len(data) < _FIRST.size:
                return self._begun(), []
            magic, id = _FIRST.unpack_from(data)
            if magic != _MAGIC:
                raise MalformedValueError("it is no history, or one of a format that is not known")
            events: dict[int, Event] = {}
            end = _FIRST.size
            for position, event, behind in _entries(data):
                if position > len(events):
                    raise MalformedValueError(f"event {len(events)} is missing")
                events[position], end = to_event(event), behind
            os.ftruncate(self._file, end)
            return id.decode("ascii", "replace"), list(events.values())

    def set_aside(self) -> str:
        """Begins another file, and leaves this one beside it. The id of the history that begins."""
        with _explained(self._path):
            self._path.rename(self._path.with_name(self._path.name + DAMAGED))
        self.close()
        self._file = _opened(self._path)
        return self._begun()

    def _begun(self) -> str:
        id = uuid.uuid4().hex
        os.ftruncate(self._file, 0)
        os.write(self._file, _FIRST.pack(_MAGIC, id.encode()))
        return id

    # -- Keep --

    def add(self, position: int, event: Event) -> None:
        if self._failure is not None or self._file < 0:
            return
        data = from_event(event)
        entry = _ENTRY.pack(len(data), _sum(position, data), position) + data
        try:
            written = os.write(self._file, entry)
            if written != len(entry):
                raise OSError("no room is left")
        except OSError as error:
            self._failure = HistoryUnavailableError(str(self._path), error.strerror or str(error))
            _log.warning("steps are not written to their history any more: %s", self._failure)

    def shed(self, position: int, record: StepRecord) -> None:
        self.add(position, record)

    def flush(self) -> None:
        """Waits until everything so far is on disk. Raises HistoryUnavailableError when something is not written."""
        if self._failure is not None:
            raise self._failure
        if self._file >= 0:
            os.fdatasync(self._file)

    def close(self) -> None:
        """Closing twice is fine."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _entries(data: memoryview) -> Iterator[tuple[int, bytes, int]]:
    """Position and event of each that is whole, and where the next one begins. Raises MalformedValueError.

    One that is cut off is the last: its writer was killed, or the disk was full.
    """
    at = _FIRST.size
    while at + _ENTRY.size <= len(data):
        length, total, position = _ENTRY.unpack_from(data, at)
        behind = at + _ENTRY.size + length
        if behind > len(data):
            return
        event = bytes(data[at + _ENTRY.size : behind])
        if total != _sum(position, event):
            # The file had grown when the machine lost its power, and had no content yet.
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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def open_log(path: Path) -> History:
    """The history in a file, going on there; see EventLog for errors.

    A file that is damaged is set aside, and another begun: whoever reads that misses steps, and is told so.
    """
    keep = EventLog(path)
    try:
        return _read(keep)
    except MalformedValueError as error:
        _log.error("the history %s is damaged and was set aside: %s", path, error)
        return History(keep, keep.set_aside())
    except BaseException:
        keep.close()
        raise


def _read(keep: EventLog) -> History:
    id, events = keep.read()
    history = History(keep, id)
    history.read(events)
    return history
