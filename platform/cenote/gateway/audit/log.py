"""Writes the audit log, and recovers it when it is opened again.

There is one writer at a time, which holds a lock on the folder.

An append is acknowledged once the head is signed. Entries after the head were not acknowledged: complete ones stay,
and everything from the first incomplete one is cut off. A state that no crash can explain is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from cenote.gateway.audit.entries import (
    SLOT_BYTES,
    START,
    AuditEvent,
    BrokenLineError,
    Facts,
    Mark,
    after,
    before,
    head_slot,
    parse_line,
    read_head,
    signed_base,
)
from cenote.gateway.audit.folder import BASE, HEAD, LOCK, ChainWalk, file_of, log_files, read_lines
from cenote.gateway.errors import AuditBrokenError, AuditUnavailableError
from cenote_security.auth.secret_files import create_secret_file, replace_file, sync_folder
from cenote_security.errors import UsageError


class LogFile:
    """A file open for its one writer. size: bytes of complete entries."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """size: where to continue in an existing file; the rest is cut off. None: a new file. Raises OSError."""
        create = os.O_CREAT | os.O_EXCL if size is None else 0
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create, 0o600)
        self.size = size or 0
        self._ragged = size is not None
        if size is None:
            try:
                sync_folder(path.parent)
            except OSError:
                os.close(self._fd)
                path.unlink()  # else it could never be created
                raise

    def write(self, content: bytes) -> None:
        """Appends all of it. On OSError, the part that was appended is removed, now or before the next write."""
        self._cut()
        self._ragged = True
        try:
            self._write(content)
        except OSError:
            with suppress(OSError):
                self._cut()
            raise
        self._ragged = False
        self.size += len(content)

    def sync(self) -> None:
        """Raises OSError, and then the state of the disk is unknown: a second sync would report success."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1  # another file may soon have that number
        os.close(fd)

    def _write(self, content: bytes) -> None:
        written = 0
        while written < len(content):
            written += os.pwrite(self._fd, content[written:], self.size + written)

    def _cut(self) -> None:
        if self._ragged:
            os.ftruncate(self._fd, self.size)
            self._ragged = False


class HeadFile:
    """The head, open for its one writer. mark: its content."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Created for a log without files. Raises AuditBrokenError if it was not signed with this key; OSError."""
        path = folder / HEAD
        if not path.exists() and not log_files(folder):
            create_secret_file(path, head_slot(START, key).ljust(2 * SLOT_BYTES, b" "))
        found = read_head(path.read_bytes(), key) if path.exists() else None
        if found is None:
            raise AuditBrokenError(folder, "its head is missing, or was not signed with this key")
        self.mark, self._slot = found
        self._key = key
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def advance(self, mark: Mark) -> None:
        """Writes a new mark, which is on the disk on return. Raises OSError; then either mark may be there."""
        slot = 1 - self._slot
        os.pwrite(self._fd, head_slot(mark, self._key), slot * SLOT_BYTES)
        os.fdatasync(self._fd)
        self.mark, self._slot = mark, slot

    def close(self) -> None:
        fd, self._fd = self._fd, -1  # another file may soon have that number
        os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecovery:
    """mark: the last good entry. path: the file to continue, None for a log without files; size: its good bytes.

    unsigned: good entries after the head. dropped: the incomplete bytes after them.
    """

    mark: Mark
    path: Path | None = None
    size: int = 0
    unsigned: int = 0
    dropped: bytes = b""

    @property
    def note(self) -> Facts | None:
        """What the log should record about it, None if there was nothing to recover."""
        if not self.unsigned and not self.dropped:
            return None
        return {
            "adopted_entries": self.unsigned,
            "dropped_bytes": len(self.dropped),
            "dropped_sha256": hashlib.sha256(self.dropped).hexdigest(),
        }


def recover(folder: Path, head: Mark) -> LogRecovery:
    """Reads the last file; older ones are for `verify`. Raises AuditBrokenError."""
    files = log_files(folder)
    if not files:
        if head.number:
            raise AuditBrokenError(folder, f"its files are missing, up to entry {head.number}")
        return LogRecovery(mark=head)
    path = files[-1]
    walk = ChainWalk(_start(folder, path, head), [head])
    stop = walk.read(path)
    if walk.missing():
        where = (
            f"{path.name}, line {stop.line}: {stop.reason}" if stop else f"it ends before entry {head.number}"
        )
        raise AuditBrokenError(folder, where)
    size = stop.offset if stop else path.stat().st_size
    return LogRecovery(
        mark=walk.mark,
        path=path,
        size=size,
        unsigned=walk.mark.number - head.number,
        dropped=_rest(path, size),
    )


def _rest(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def _start(folder: Path, path: Path, head: Mark) -> Mark:
    """The entry before the file's first, as the first one says, or the head if that is incomplete."""
    first = next(read_lines(path), None)
    try:
        start = head if first is None else before(parse_line(first.content))
    except BrokenLineError:
        start = head
    if start.number != int(path.stem) - 1 or start.number > head.number:
        raise AuditBrokenError(folder, f"{path.name} does not continue what was signed")
    if start.number == head.number and start.hash != head.hash:
        raise AuditBrokenError(folder, f"the entry before {path.name} is not the one that was signed")
    return start


DEFAULT_FILE_BYTES: Final = 64 * 2**20
KEY_BYTES: Final = 32

LONGEST_FILE: Final = 86_400.0
"""Seconds that one file covers, where entries are not kept for ever."""


class AuditLog:
    """Used from any thread; entries are placed in the order of the calls."""

    def __init__(
        self,
        folder: Path,
        key: bytes,
        *,
        file_bytes: int = DEFAULT_FILE_BYTES,
        keep: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the log to continue it, or creates one. Records what a predecessor left incomplete.

        key: signs the head; needed for verification too. file_bytes: the size from which a new file is begun. keep:
        minimum seconds for which entries are kept, see `trim`; 0 for ever. Raises AuditUnavailableError when another
        writer has it or the disk refuses, AuditBrokenError when it was changed.
        """
        if len(key) < KEY_BYTES:
            raise UsageError(f"the key of an audit log has at least {KEY_BYTES} bytes")
        self.folder = folder
        self._key = key
        self._keep = keep
        self._began = 0.0
        """When the current file was begun."""
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
        """The last acknowledged entry. Copied to where it cannot be changed, it is a witness for `verify`."""
        return self._head.mark

    def append(self, *events: AuditEvent) -> Mark:
        """Records events, all or none, and returns the place of the last one.

        Raises AuditUnavailableError. After a full disk the call may be repeated; a disk that failed to sync ends this
        writer, since it is unknown what was written. Raises UsageError for events that are too large.
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
        """Removes files all of whose entries are older than `keep`; returns the number of entries.

        The removal is recorded before, and the rest can still be verified. Raises AuditUnavailableError.
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
        self.append(AuditEvent(kind="log.trimmed", facts={"entries": removed, "up_to": base.number}))
        try:
            replace_file(self.folder / BASE, signed_base(base, self._key))
            for path in old:
                path.unlink()
        except OSError as error:
            raise AuditUnavailableError(self.folder, str(error)) from None
        return removed

    def close(self) -> None:
        """Lets another writer in. Closing twice is fine; later appends are refused."""
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
            self.append(AuditEvent(kind="log.recovered", facts=found.note))

    def _next(self, events: tuple[AuditEvent, ...]) -> tuple[Mark, bytes]:
        mark, lines = self._head.mark, []
        for event in events:
            entry = after(mark, event, int(self._clock() * 1e6))
            line, digest = entry.written()
            lines.append(line)
            mark = Mark(number=entry.number, hash=digest)
        return mark, b"".join(lines)

    def _room(self) -> LogFile:
        """The file to write to: a new one, when the last is full."""
        if self._file is None or self._file.size >= self._file_bytes or self._is_old:
            file = LogFile(file_of(self.folder, self._head.mark.number + 1))
            self._close_file()
            self._file, self._began = file, self._clock()
        return self._file

    @property
    def _is_old(self) -> bool:
        """Only whole files are removed, so each covers a part of the retention time."""
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
