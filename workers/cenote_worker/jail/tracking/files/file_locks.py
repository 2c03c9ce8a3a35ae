"""Locks on files: what the kernel reports about those that this process holds, and how to read files without
releasing them.
"""

from __future__ import annotations

import fcntl
import os
import resource
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_FIELDS: Final = 9
"""Number of fields in a line about a lock."""

_MOST: Final = 64 * 1024
"""Bytes that are read about a descriptor: some hundred locks."""

_DESCRIPTORS: Final = "/proc/self/fd"

_open, _read, _close, _listdir, _readlink = os.open, os.read, os.close, os.listdir, os.readlink
_stat, _fstat, _samestat, _flags_of, _limits = (
    os.stat,
    os.fstat,
    os.path.samestat,
    fcntl.fcntl,
    resource.getrlimit,
)

_UNREADABLE: Final = os.O_WRONLY | os.O_DIRECT | 0o10000000
"""Flags of open files that `pread` cannot read at any position; the last one is `O_PATH` of Linux."""


class FileLock(NamedTuple):
    """way: FLOCK, POSIX, or OFDLCK. kind: READ or WRITE. start, end: bytes, as the kernel writes them."""

    way: str
    kind: str
    start: str
    end: str


Locks = Mapping[int, frozenset[FileLock]]
"""By descriptor."""


def locks_of(number: int) -> frozenset[FileLock]:
    """The locks held through this descriptor; empty if the kernel does not report them."""
    try:
        told = _told(number)
    except OSError:
        return frozenset()
    if b"lock:" not in told:
        return frozenset()
    lines = [line.split() for line in told.decode("ascii", "replace").splitlines() if line[:5] == "lock:"]
    return frozenset(FileLock(line[2], line[4], line[7], line[8]) for line in lines if len(line) == _FIELDS)


def _told(number: int) -> bytes:
    info = _open(f"/proc/self/fdinfo/{number}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read(info, _MOST)
    finally:
        _close(info)


def locks_on(descriptors: Iterable[int]) -> Locks:
    found = {number: locks_of(number) for number in descriptors}
    return {number: locks for number, locks in found.items() if locks}


class HeldLocks:
    """The current locks, for repeated queries: nothing is looked up before the first lock is taken."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self) -> None:
        """Called when a lock is taken or released."""
        self._asked = True

    def has(self, number: int) -> bool:
        """Whether this process may hold a lock of `fcntl` on the file that this descriptor has open."""
        try:
            return b"POSIX" in _told(number)
        except OSError:  # at `landlock`
            return self._asked

    def now(self) -> object:
        """The locks by path."""
        if not self._asked:
            return []
        try:
            locks = locks_on(map(int, _listdir(_DESCRIPTORS)))
        except OSError:  # at `landlock`
            return []
        return sorted([_path(number), *map(list, sorted(held))] for number, held in locks.items())


def _path(number: int) -> str:
    try:
        return _readlink(f"{_DESCRIPTORS}/{number}")
    except OSError:
        return ""


HELD: Final = HeldLocks()


class FileReader(NamedTuple):
    """number: a descriptor to read from with `pread`. is_ours: False for one that belongs to the program; then its
    position must stay, and no copy of it may be closed."""

    number: int
    is_ours: bool


@contextmanager
def reading(
    path: str | bytes | os.PathLike[str], flags: int, folder: int | None = None
) -> Iterator[FileReader]:
    """Opens a file that the program may have locked. Raises OSError.

    Locks of `fcntl` belong to a process, and closing any descriptor of a file releases all that the process holds on
    it: SQLite would lose its locks in the middle of a transaction (https://www.sqlite.org/howtocorrupt.html, 2.2). So
    a file that the process has open is read through the program's own descriptor. If that can only write, ours stays
    open as long as there is a lock.
    """
    _close_unlocked()
    number, locked = _found(_stat(path, dir_fd=folder, follow_symlinks=False))
    if number is not None:
        yield FileReader(number, is_ours=False)
        return
    opened = _open(path, flags, dir_fd=folder)
    try:
        yield FileReader(opened, is_ours=True)
    finally:
        if locked:
            _STAYING.append(opened)
        else:
            _close(opened)


_STAYING: Final[list[int]] = []
"""Our descriptors of files that the program has locked."""


def _close_unlocked() -> None:
    for number in tuple(_STAYING):
        if not any(map(HELD.has, _opened(_fstat(number)))):  # reported for the descriptor that took the lock
            _STAYING.remove(number)
            _close(number)


def _found(status: os.stat_result) -> tuple[int | None, bool]:
    """A descriptor of this process through which that file can be read, and whether the file may be locked."""
    numbers = _opened(status) if stat.S_ISREG(status.st_mode) else []
    for number in numbers:
        if not _flags_of(number, fcntl.F_GETFL) & _UNREADABLE:
            return number, True
    return None, any(map(HELD.has, numbers))


def _opened(status: os.stat_result) -> list[int]:
    """The descriptors of this process that have that file open."""
    found = []
    for number in _numbers():
        with suppress(OSError):  # not open, or the descriptor of the look itself
            if _samestat(_fstat(number), status):
                found.append(number)
    return found


def _numbers() -> Iterable[int]:
    try:
        return map(int, _listdir(_DESCRIPTORS))
    except PermissionError:  # at `landlock`
        return range(_limits(resource.RLIMIT_NOFILE)[0])
