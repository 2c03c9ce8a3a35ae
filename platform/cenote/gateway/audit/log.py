"""Writes the audit log. One writer at a time, held by a lock on the folder.

When `append` returns, its entries and then the head are on the disk (fdatasync of each, and of the folder when a
file was made): they outlast a kill and, as far as the disk is honest, a power cut. Several events in one call share
these two syncs. When it raises, what was to be recorded must not be done.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from cenote.gateway.audit.chain import Mark, after, before
from cenote.gateway.audit.entry import Event, parse_line
from cenote.gateway.audit.folder import BASE, LOCK, file_of, log_files, read_lines
from cenote.gateway.audit.head import signed_base
from cenote.gateway.audit.head_file import HeadFile
from cenote.gateway.audit.log_file import LogFile
from cenote.gateway.audit.recovery import recover
from cenote.gateway.errors import AuditUnavailableError
from cenote_security.errors import UsageError
from cenote_security.secret_files import replace_file

DEFAULT_FILE_BYTES: Final = 64 * 2**20
KEY_BYTES: Final = 32

LONGEST_FILE: Final = 86_400.0
"""Seconds that one file covers, where entries are not kept for ever."""


class AuditLog:
    """Used from any thread; entries get their places in the order of the calls."""

    def __init__(
        self,
        folder: Path,
        key: bytes,
        *,
        file_bytes: int = DEFAULT_FILE_BYTES,
        keep: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the log to go on with it, or starts one. Notes what a predecessor left unfinished.

        key: signs the head; who verifies needs it too. file_bytes: a file that has so many is followed by another.
        keep: seconds for which entries are kept at least, see `trim`; 0 for ever.
        Raises AuditUnavailableError when another writer has it or the disk refuses, AuditBrokenError when it is not
        as it was left.
        """
        if len(key) < KEY_BYTES:
            raise UsageError(f"the key of an audit log has at least {KEY_BYTES} bytes")
        self.folder = folder
        self._key = key
        self._keep = keep
        self._began = 0.0
        """When the file was begun that is written to."""
        self._file_bytes = file_bytes
        self._clock = clock
        self._mutex = threading.Lock()
        self._problem = ""
        self._file: LogFile | None = None
        with ExitStack() as opened:
            try:
                self._open(key, opened)
            except OSError as error:
                raise AuditUnavailableError(folder, str(error)) from None
            self._opened = opened.pop_all()

    @property
    def mark(self) -> Mark:
        """The last acknowledged entry. Copied to where nobody can change it, it is a witness for `verify`."""
        return self._head.mark

    def append(self, *events: Event) -> Mark:
        """Records events, all or none, and gives the place of the last one.

        Raises AuditUnavailableError. After a full disk the call may be repeated; a disk that failed to sync ends this
        writer, as nobody knows what it has kept. Raises UsageError for events that are too large.
        """
        with self._mutex:
            if self._problem:
                raise AuditUnavailableError(self.folder, self._problem)
            mark, content = self._next(events)
            try:
                file = self._room()
                file.write(content)
            except OSError as error:
                raise AuditUnavailableError(self.folder, str(error)) from None
            self._acknowledge(file, mark)
            return mark

    def trim(self) -> int:
        """Removes files all of whose entries are older than what is kept; how many entries that were.

        It is on record before, and what is left can be verified as before. Raises AuditUnavailableError.
        """
        if not self._keep or len(files := log_files(self.folder)) < 2:
            return 0
        limit, base, old = int((self._clock() - self._keep) * 1e6), None, list[Path]()
        for path, following in pairwise(files):
            first = parse_line(next(read_lines(following)).content)
            if first.at > limit:
                break
            base, old = before(first), [*old, path]
        if base is None:
            return 0
        removed = base.number + 1 - int(old[0].stem)
        self.append(Event(kind="log.trimmed", facts={"entries": removed, "up_to": base.number}))
        try:
            replace_file(self.folder / BASE, signed_base(base, self._key))
            for path in old:
                path.unlink()
        except OSError as error:
            raise AuditUnavailableError(self.folder, str(error)) from None
        return removed

    def close(self) -> None:
        """Lets another writer in. Closing twice is fine; what is appended afterwards is refused."""
        with self._mutex:
            self._problem = self._problem or "it was closed"
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, key: bytes, opened: ExitStack) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened.callback(os.close, _lock(self.folder))
        opened.callback(self._close_file)
        self._head = HeadFile(self.folder, key)
        opened.callback(self._head.close)
        found = recover(self.folder, self._head.mark)
        if found.path is not None:
            self._file = LogFile(found.path, found.size)
            self._began = found.path.stat().st_mtime
            self._acknowledge(self._file, found.mark)
        if found.note is not None:
            self.append(Event(kind="log.recovered", facts=found.note))

    def _next(self, events: tuple[Event, ...]) -> tuple[Mark, bytes]:
        mark, lines = self._head.mark, []
        for event in events:
            entry = after(mark, event, int(self._clock() * 1e6))
            line, digest = entry.written()
            lines.append(line)
            mark = Mark(number=entry.number, hash=digest)
        return mark, b"".join(lines)

    def _room(self) -> LogFile:
        """The file to write to: the next one, when the last is full."""
        if self._file is None or self._file.size >= self._file_bytes or self._is_old:
            file = LogFile(file_of(self.folder, self._head.mark.number + 1))
            self._close_file()
            self._file, self._began = file, self._clock()
        return self._file

    @property
    def _is_old(self) -> bool:
        """Only whole files go, so one covers a part of the time that entries are kept."""
        return bool(self._keep) and self._clock() - self._began > min(self._keep / 4, LONGEST_FILE)

    def _acknowledge(self, file: LogFile, mark: Mark) -> None:
        try:
            file.sync()
            self._head.advance(mark)
        except OSError as error:
            self._problem = f"a sync failed ({error}); open the log again to see what is there"
            raise AuditUnavailableError(self.folder, self._problem) from None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(folder: Path) -> int:
    fd = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditUnavailableError(folder, "another writer has it; there is one gateway to a log") from None
    return fd
