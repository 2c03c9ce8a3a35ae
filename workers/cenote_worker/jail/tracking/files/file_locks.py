"""Locks on files: what the kernel reports about those that this process holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_FIELDS: Final = 9
"""Number of fields in a line about a lock."""

_MOST: Final = 64 * 1024
"""Bytes that are read about a descriptor: some hundred locks."""

_open, _read, _close, _listdir, _readlink = os.open, os.read, os.close, os.listdir, os.readlink


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

    def now(self) -> object:
        """The locks by path."""
        if not self._asked:
            return []
        try:
            locks = locks_on(map(int, _listdir("/proc/self/fd")))
        except OSError:  # at `landlock`
            return []
        return sorted([_path(number), *map(list, sorted(held))] for number, held in locks.items())


def _path(number: int) -> str:
    try:
        return _readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


HELD: Final = HeldLocks()
