"""What of a process's descriptors a copy of it can have.

Pipes and sockets cannot be in two processes at once: a copy lets go of them, or their far ends would never see the
end that the worker gives them. Counters of the kernel are one for all copies: what one has read is gone for the
others.

A fork shares open files. A lock of `flock` belongs to the open file: it would stay as long as some frozen copy is
there, though the program has closed its file, and the next one to take it would wait for ever. So a copy, and a
process that goes on from one, opens its files anew, where they were. It holds no locks then. Those that there were
are taken once it is the worker; locks of `fcntl` and `lockf`, which belong to a process, as well.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from cenote_worker.jail.process.proc_info import Position, Positions, descriptors, position, restore_positions
from cenote_worker.jail.sockets import pair
from cenote_worker.jail.tracking.files.file_locks import FileLock, Locks, locks_of, locks_on
from cenote_worker.process.pristine import BUILTINS

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
    for number, opened in positions.items():
        with suppress(OSError):
            if stat.S_ISREG(_fstat(number).st_mode):
                files.setdefault(opened.file, []).append(number)
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


def _set(number: int, lock: FileLock, operation: int) -> None:
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


_status_of, _readlink = os.fstat, os.readlink
_COUNTERS: Final = frozenset(("anon_inode:[eventfd]", "anon_inode:[timerfd]", "anon_inode:[signalfd]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedDescriptors:
    """Descriptors of a process at one moment. links: pipes, sockets and counters; pipes: those of them that are no
    sockets. positions: of its files and folders. locks: on files. others: all else, which a fork has as it was."""

    links: frozenset[int] = frozenset()
    pipes: frozenset[int] = frozenset()
    positions: Positions
    locks: Locks
    others: frozenset[int] = field(default=frozenset(), compare=False)

    @classmethod
    def now(cls, keep: Collection[int]) -> CopiedDescriptors:
        """Of this process, but no links of `keep`."""
        links, pipes, others = set[int](), set[int](), set[int]()
        positions = dict[int, Position]()
        locks: Locks = {}
        for number in descriptors():
            with suppress(OSError):
                status = _status_of(number)
                if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                    positions[number] = position(number, status)
                elif number not in keep and stat.S_ISSOCK(status.st_mode):
                    links.add(number)
                elif number not in keep and (stat.S_ISFIFO(status.st_mode) or _counts(number, status)):
                    links.add(number)
                    pipes.add(number)
                elif number not in keep:
                    others.add(number)
        if positions:
            locks = locks_on(positions)
        return cls(
            links=frozenset(links),
            pipes=frozenset(pipes),
            positions=positions,
            locks=locks,
            others=frozenset(others),
        )

    def sever(self) -> None:
        """Puts a dead end in the place of each link, and parts the files from those of the original."""
        part(self.positions)
        _end_dead(self.links)

    def bring(self, unlinked: Collection[int]) -> frozenset[int]:
        """In another jail, where files that were found there are open again. unlinked: that have no far end there.

        Gives those that are of no use here, which are dead ends then, and those whose locks somebody else has.
        """
        lost = {number for number in (*self.positions, *self.others) if not _is_open(number)} | {*unlinked}
        _end_dead(self.links | lost)
        return frozenset(lost) | take_again(self.locks, self.positions.keys() - lost)

    def restore(self) -> frozenset[int]:
        """Puts each file back to where it was, apart from the file of the copy, and takes its locks again.

        Gives the descriptors whose locks somebody else has now.
        """
        restore_positions(self.positions)
        part(self.positions)
        return take_again(self.locks, self.positions)


def _end_dead(numbers: Collection[int]) -> None:
    """A number stays taken: an object that still holds it would else close, or write to, whatever came to have it."""
    if not numbers:
        return
    dead, gone = pair(socket.SOCK_STREAM)
    gone.close()
    for number in numbers:
        if number != dead.fileno():
            os.dup2(dead.fileno(), number, inheritable=False)
    if dead.fileno() in numbers:
        dead.detach()
    else:
        dead.close()


def _is_open(number: int) -> bool:
    try:
        _status_of(number)
    except OSError:
        return False
    return True


def _counts(number: int, status: os.stat_result) -> bool:
    """Whether it is a counter of the kernel, or a timer: of those no copy has one of its own."""
    return not stat.S_IFMT(status.st_mode) and _readlink(f"/proc/self/fd/{number}") in _COUNTERS
