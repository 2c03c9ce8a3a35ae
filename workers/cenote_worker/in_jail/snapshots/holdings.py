"""What of a process's descriptors a copy of it can have.

Pipes and sockets cannot be in two processes at once: a copy lets go of them, or their far ends would never see the
end that the worker gives them. Files are opened anew, where they were, and what was locked is noted; see `own_files`.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cenote_worker.in_jail.forking.open_files import Position, Positions, descriptors, position, put_back
from cenote_worker.in_jail.snapshots.own_files import part, take_again
from cenote_worker.tracking.locks import Locks, locks_on

MAX_NAMES: Final = 20
"""Names that are told. More say nothing more."""

MOST_PARTS: Final = 10_000
"""Of all plain containers together: a look at them takes two milliseconds. A longer one is not looked into."""

_MODULES: Final = ("socket", "_io", "_socket", "ssl", "multiprocessing.connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Descriptors of a process at one moment. links: pipes and sockets; pipes: those of them that are pipes.
    positions: of its files and folders. locks: on files."""

    links: frozenset[int] = frozenset()
    pipes: frozenset[int] = frozenset()
    positions: Positions
    locks: Locks

    @classmethod
    def now(cls, keep: Collection[int]) -> Holdings:
        """Of this process, but no links of `keep`."""
        links, pipes, positions = set[int](), set[int](), dict[int, Position]()
        locks: Locks = {}
        for number in descriptors():
            with suppress(OSError):
                status = os.fstat(number)
                if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                    positions[number] = position(number, status)
                elif number not in keep and (stat.S_ISSOCK(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
                    links.add(number)
                    if stat.S_ISFIFO(status.st_mode):
                        pipes.add(number)
        if positions:
            locks = locks_on(positions)
        return cls(links=frozenset(links), pipes=frozenset(pipes), positions=positions, locks=locks)

    def sever(self) -> None:
        """Puts a dead end in the place of each link, and parts the files from those of the original.

        The number stays taken: an object that still holds it would else close, or write to, whatever came to have it.
        """
        part(self.positions)
        if not self.links:
            return
        dead, gone = socket.socketpair()
        gone.close()
        for descriptor in self.links:
            os.dup2(dead.fileno(), descriptor, inheritable=False)
        dead.close()

    def restore(self) -> frozenset[int]:
        """Puts each file back to where it was, apart from the file of the copy, and takes its locks again.

        Gives the descriptors whose locks somebody else has now.
        """
        put_back(self.positions)
        part(self.positions)
        return take_again(self.locks, self.positions)


def severed_names(
    namespace: Mapping[str, object], links: Collection[int], pipes: Collection[int] = ()
) -> list[str]:
    """Variables that were something with such a descriptor, a thread, or a process; at most MAX_NAMES.

    What is in plain containers counts, but of these MOST_PARTS in all: whoever goes back waits for the look, and what
    is looked at is copied. pipes: of the links. Of these a program often has the number only. A number that means
    something else is told as well then; sockets come with an object, and every event loop has some.
    """
    kinds: list[type] = [threading.Thread]
    if "subprocess" in sys.modules:
        kinds.append(sys.modules["subprocess"].Popen)
    names, left = list[str](), MOST_PARTS
    for name, value in list(namespace.items()):
        inner = _inner(value, left)
        left -= len(inner)
        if any(type(part) in kinds or _has(part, links, pipes) for part in (value, *inner)):
            names.append(name)
    return names[:MAX_NAMES]


def _inner(value: object, most: int) -> tuple[object, ...]:
    """What is in a plain container of at most so many."""
    if type(value) is dict and len(value) <= most:
        return tuple(value.values())
    if isinstance(value, list | tuple) and type(value) in (list, tuple) and len(value) <= most:
        return tuple(value)
    return ()


def _has(value: object, links: Collection[int], pipes: Collection[int]) -> bool:
    """Only an object of the standard library is asked for its descriptor: any other may do anything."""
    if type(value) is int:
        return value in pipes
    if not links or type(value).__module__ not in _MODULES:
        return False
    with suppress(Exception):
        return value.fileno() in links  # type: ignore[attr-defined]
    return False
