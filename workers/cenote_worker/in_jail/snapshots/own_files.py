"""Open files of a copy, apart from those of the process that it was made of; and the locks on them.

A fork shares what is open. A lock of `flock` belongs to that: it would stay as long as some frozen copy is there,
though the program has closed its file, and whoever takes it again would wait for ever. So a copy, and whoever goes on
from one, opens its files anew. It holds no locks then. Those that there were are taken once it is the worker; locks
of `fcntl` and `lockf`, which belong to a process, as well.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Self

from cenote_worker.in_jail.forking.open_files import Positions
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.tracking.locks import Lock, Locks, locks_of

__builtins__ = BUILTINS

_fstat = os.fstat

_KEPT_FLAGS: Final = (
    os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DSYNC | os.O_DIRECT | os.O_NOATIME
)
"""What a file is opened with again. It is there, so neither made nor emptied."""

_PATH: Final = 0o10000000
"""`O_PATH` of Linux: no file is open there."""

_TO_THE_END: Final = "EOF"
_RANGE: Final = struct.Struct("hhqqi4x")
"""`struct flock` of Linux: kind, from where, start, length, process."""


class Parting:
    """The original waits at its end until the copy has said that it is done: before that the copy holds locks too."""

    def __init__(self, *, needed: bool) -> None:
        self._pipe = os.pipe2(os.O_CLOEXEC) if needed else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            reading, writing = self._pipe
            os.close(writing)
            os.read(reading, 1)
            os.close(reading)

    def done(self) -> None:
        """In the copy."""
        for end in self._pipe or ():
            os.close(end)
        self._pipe = None


def part(positions: Positions) -> None:
    """Opens these regular files anew, where they were. What several descriptors share they go on sharing.

    One that cannot be opened any more stays shared.
    """
    files = dict[tuple[int, int], list[int]]()
    for number, position in positions.items():
        with suppress(OSError):
            if stat.S_ISREG(_fstat(number).st_mode):
                files.setdefault(position.file, []).append(number)
    for numbers in files.values():
        while numbers:
            first, *others = numbers
            same = [first, *(each for each in others if _is_same(first, each))]
            with suppress(OSError):
                _open_anew(same, positions[first].at)
            numbers = [each for each in others if each not in same]


def take_again(locks: Locks, descriptors: Iterable[int]) -> frozenset[int]:
    """Has exactly these locks held. Gives the descriptors of which that is not so: somebody else holds one."""
    lost = set[int]()
    for number in {*descriptors, *locks}:
        wanted = locks.get(number, frozenset())
        held = locks_of(number)
        with suppress(OSError):
            for lock in held - wanted:
                _set(number, lock, fcntl.LOCK_UN)
            for lock in wanted - locks_of(number):
                _set(number, lock, fcntl.LOCK_EX if lock.kind == "WRITE" else fcntl.LOCK_SH)
        if locks_of(number) != wanted:
            lost.add(number)
    return frozenset(lost)


def _is_same(one: int, other: int) -> bool:
    """Whether two descriptors are of one opening: then they share its flags. This one means nothing for files."""
    flags = fcntl.fcntl(one, fcntl.F_GETFL)
    if fcntl.fcntl(other, fcntl.F_GETFL) != flags:
        return False
    fcntl.fcntl(one, fcntl.F_SETFL, flags ^ os.O_NONBLOCK)
    try:
        return fcntl.fcntl(other, fcntl.F_GETFL) != flags
    finally:
        fcntl.fcntl(one, fcntl.F_SETFL, flags)


def _open_anew(numbers: list[int], at: int) -> None:
    flags = fcntl.fcntl(numbers[0], fcntl.F_GETFL)
    if flags & _PATH:
        return
    opened = os.open(f"/proc/self/fd/{numbers[0]}", flags & _KEPT_FLAGS | os.O_CLOEXEC)
    try:
        os.lseek(opened, at, os.SEEK_SET)
        for number in numbers:
            os.dup2(opened, number, inheritable=os.get_inheritable(number))
    finally:
        os.close(opened)


def _set(number: int, lock: Lock, operation: int) -> None:
    """Without waiting. Raises OSError."""
    if lock.way == "FLOCK":
        fcntl.flock(number, operation | fcntl.LOCK_NB)
        return
    start = int(lock.start)
    length = 0 if lock.end == _TO_THE_END else int(lock.end) - start + 1
    if lock.way == "POSIX":
        fcntl.lockf(number, operation | fcntl.LOCK_NB, length, start)
        return
    kinds = {fcntl.LOCK_UN: fcntl.F_UNLCK, fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_SH: fcntl.F_RDLCK}
    wanted = _RANGE.pack(kinds[operation], os.SEEK_SET, start, length, 0)
    fcntl.fcntl(number, fcntl.F_OFD_SETLK, wanted)
