"""What of a process's descriptors a copy of it can have.

Pipes and sockets cannot be in two processes at once: a copy lets go of them, or their far ends would never see the
end that the worker gives them. Counters of the kernel are one for all copies: what one has read is gone for the
others. Files are opened anew, where they were, and what was locked is noted; see `own_files`.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cenote_worker.in_jail.forking.open_files import Position, Positions, descriptors, position, put_back
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.own_files import part, take_again
from cenote_worker.in_jail.sockets import pair
from cenote_worker.tracking.locks import Locks, locks_on

__builtins__ = BUILTINS

_fstat, _readlink = os.fstat, os.readlink
_COUNTERS: Final = frozenset(("anon_inode:[eventfd]", "anon_inode:[timerfd]", "anon_inode:[signalfd]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Descriptors of a process at one moment. links: pipes, sockets and counters; pipes: those of them that are no
    sockets. positions: of its files and folders. locks: on files. others: all else, which a fork has as it was."""

    links: frozenset[int] = frozenset()
    pipes: frozenset[int] = frozenset()
    positions: Positions
    locks: Locks
    others: frozenset[int] = field(default=frozenset(), compare=False)

    @classmethod
    def now(cls, keep: Collection[int]) -> Holdings:
        """Of this process, but no links of `keep`."""
        links, pipes, others = set[int](), set[int](), set[int]()
        positions = dict[int, Position]()
        locks: Locks = {}
        for number in descriptors():
            with suppress(OSError):
                status = _fstat(number)
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
        put_back(self.positions)
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
        _fstat(number)
    except OSError:
        return False
    return True


def _counts(number: int, status: os.stat_result) -> bool:
    """Whether it is a counter of the kernel, or a timer: of those no copy has one of its own."""
    return not stat.S_IFMT(status.st_mode) and _readlink(f"/proc/self/fd/{number}") in _COUNTERS
