"""The descriptors of a process that a copy of it can have.

Pipes and sockets cannot be in two processes at once. A copy closes them, or their peers would never see the end of
stream when the worker closes its ends. Kernel counters are shared by all copies: what one copy reads is gone for the
others.

A fork shares open files. A `flock` lock belongs to the open file. It would last as long as a frozen copy, although
the program has closed its file, and the next process to take it would wait forever. So a copy, and a process that
continues from one, reopens its files at their positions. The reopened files hold no locks. The former locks are taken
again when the process becomes the worker; so are locks of `fcntl` and `lockf`, which belong to a process.
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
"""Flags for reopening a file. The file exists, so it is neither created nor truncated."""

_PATH: Final = 0o10000000
"""`O_PATH` of Linux: the descriptor has no open file."""

_TO_THE_END: Final = "EOF"
_RANGE: Final = struct.Struct("hhqqi4x")
"""`struct flock` of Linux: type, whence, start, length, pid."""


class Parting:
    """At exit the original waits until the copy calls `done`: before that the copy holds the locks too."""

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
        """Called in the copy."""
        for end in self._pipe or ():
            os.close(end)
        self._pipe = None


def part(positions: Positions) -> None:
    """Reopens these regular files at their positions. Descriptors that shared an open file still share one.

    A file that cannot be reopened stays shared.
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
    """Makes the held locks exactly these. Returns the descriptors for which that failed: another process holds a
    lock."""
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
    """Whether two descriptors share an open file: then they share its flags. The flag used has no effect on files."""
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
    """Takes or releases a lock without waiting. Raises OSError."""
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
    """Descriptors of a process at one moment. links: pipes, sockets and counters. pipes: those links that are no
    sockets. positions: of its files and folders. locks: on files. own: those memory files that
    Cenote has for itself; no program has their numbers. others: all others, which a fork shares unchanged."""

    links: frozenset[int] = frozenset()
    pipes: frozenset[int] = frozenset()
    positions: Positions
    locks: Locks
    own: frozenset[int] = field(default=frozenset(), compare=False)
    others: frozenset[int] = field(default=frozenset(), compare=False)

    @classmethod
    def now(cls, keep: Collection[int]) -> CopiedDescriptors:
        """The descriptors of this process, but no links that are in `keep`."""
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
            own=frozenset(number for number in positions if is_own(number)),
            others=frozenset(others),
        )

    def sever(self) -> None:
        """Replaces each link by a dead end, and reopens the files so that they are separate from the original's."""
        part(self.positions)
        _end_dead(self.links)

    def bring(self, unlinked: Collection[int]) -> frozenset[int]:
        """Called in another jail, where the files that exist there are open again. unlinked: links that have no peer
        there.

        Returns the descriptors that are unusable here, which are then dead ends, and those whose locks another
        process holds.
        """
        lost = {number for number in (*self.positions, *self.others) if not _is_open(number)} | {*unlinked}
        _end_dead(self.links | lost)
        return frozenset(lost) | take_again(self.locks, self.positions.keys() - lost)

    def restore(self) -> frozenset[int]:
        """Restores each file's position, separate from the file of the copy, and takes its locks again.

        Returns the descriptors whose locks another process holds now.
        """
        restore_positions(self.positions)
        part(self.positions)
        return take_again(self.locks, self.positions)


def _end_dead(numbers: Collection[int]) -> None:
    """A number stays in use: an object that still has it would else close, or write to, a later file with that
    number."""
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


def is_own(number: int) -> bool:
    """Whether it is a memory file of Cenote's, such as the image that is being written. Raises OSError."""
    return _readlink(f"/proc/self/fd/{number}").startswith("/memfd:cenote")


def _counts(number: int, status: os.stat_result) -> bool:
    """Whether it is a kernel counter or a timer: copies share these."""
    return not stat.S_IFMT(status.st_mode) and _readlink(f"/proc/self/fd/{number}") in _COUNTERS
