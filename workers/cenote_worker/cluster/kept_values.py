"""Shared values as the keeper of a node has them: in memory, and those that are not used on disk.

Either way a value is an entry with a descriptor. Which entries are in memory is said by their keys, when a value was
last used by the times of its memory file: so the processes of a node agree without telling each other anything.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cenote_security.sealed import SealedMemory
from cenote_worker.cluster.eviction import InMemory, evicted
from cenote_worker.cluster.value_disk import ValueDisk
from cenote_worker.keeper.client import KeeperClient, Kept
from cenote_worker.keeper.message import close_all
from cenote_worker.supervisor.start import machine_memory

VALUES: Final = "value/"
SPILLED: Final = "spilled/"
"""Where entries are whose values are on disk. A value that moves is in both places for a moment, never in none."""

RUNTIMES: Final = "runtime/"
INJECTION: Final = "/injection/"
"""Where runtimes have what was injected into them."""


class KeptValues:
    """name: of a value, `TENANT/REFERENCE`. room: bytes of memory for all, None for half of what the machine has."""

    def __init__(self, keeper: KeeperClient, room: int | None) -> None:
        self._keeper = keeper
        self._room = _half_of_memory() if room is None else room
        self._disk = ValueDisk(keeper.folder)

    def put(self, name: str, record: bytes, memory: SealedMemory) -> None:
        """The caller keeps its memory. Raises UnavailableError where neither memory nor disk has room for it."""
        _note_use(memory.fileno())
        with _turn(self._keeper.folder):
            if self._make_room(memory.size):
                self._keeper.put(VALUES + name, record, [memory.fileno()])
            else:  # what is in memory is in use: there it would be in nobody's way
                self._put_on_disk(name, record, memory)

    def get(self, name: str) -> Kept | None:
        """Whoever gets it owns the descriptor."""
        # In this order: one that moves to disk meanwhile is there before it is gone here.
        return self._keeper.get(VALUES + name) or self._keeper.get(SPILLED + name)

    def use(self, name: str) -> Kept | None:
        """The same, and a note that somebody uses it."""
        kept = self.get(name)
        if kept is not None:
            _note_use(kept.descriptors[0])
        return kept

    def drop(self, name: str) -> None:
        """In the order in which it moves, so that a value that moves to disk meanwhile does not stay there."""
        self._keeper.drop(VALUES + name)
        self._keeper.drop(SPILLED + name)

    def names(self, tenant: str = "") -> list[str]:
        """Of one tenant's values, or of all; in order."""
        prefix = f"{tenant}/" if tenant else ""
        kinds = (VALUES, SPILLED)
        found = {key.removeprefix(kind) for kind in kinds for key in self._keeper.keys(kind + prefix)}
        return sorted(found)

    # -- room --

    def _make_room(self, size: int) -> bool:
        """Whether memory has room for so much now. Raises UnavailableError when the disk is full."""
        if size > self._room:
            return False
        lacking = self._used() + size - self._room
        if lacking <= 0:
            return True
        leaving = evicted(self._in_memory(), lacking)
        for value in leaving or ():
            self._spill(value.name)
        return leaving is not None

    def _spill(self, name: str) -> None:
        kept = self._keeper.get(VALUES + name)
        if kept is None:  # nobody needs it any more
            return
        with SealedMemory(kept.descriptors[0], size_of(name)) as memory:
            self._put_on_disk(name, kept.record, memory)
        self._keeper.drop(VALUES + name)

    def _put_on_disk(self, name: str, record: bytes, memory: SealedMemory) -> None:
        with self._disk.write(memory) as written:
            self._keeper.put(SPILLED + name, record, [written.fileno()])

    def _used(self) -> int:
        return sum(map(size_of, self._keeper.keys(VALUES)))

    def _in_memory(self) -> Iterator[InMemory]:
        held = self._held_by_runtimes()
        for key in self._keeper.keys(VALUES):
            kept = self._keeper.get(key)
            if kept is None:
                continue
            status = os.fstat(kept.descriptors[0])
            close_all(kept.descriptors)
            name = key.removeprefix(VALUES)
            yield InMemory(
                name=name,
                size=size_of(name),
                used=status.st_mtime_ns,
                held=(status.st_dev, status.st_ino) in held,
            )

    def _held_by_runtimes(self) -> set[tuple[int, int]]:
        """The memory that injections of this node's runtimes have: kept for the jails to come, and mapped now."""
        held = set()
        for key in self._keeper.keys(RUNTIMES):
            kept = self._keeper.get(key) if INJECTION in key else None
            for descriptor in kept.descriptors if kept is not None else ():
                status = os.fstat(descriptor)
                held.add((status.st_dev, status.st_ino))
            if kept is not None:
                close_all(kept.descriptors)
        return held


def size_of(name: str) -> int:
    """By the reference that it is known by."""
    return int(name.split("_")[-2], 16)


def _note_use(descriptor: int) -> None:
    now = time.time_ns()  # the kernel's own idea of now is some milliseconds old
    with suppress(OSError):  # without the right to: then it is as old as its memory
        os.utime(descriptor, ns=(now, now))


def _half_of_memory() -> int:
    """Of the machine, or of the container that this process is in."""
    return machine_memory() // 2


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One at a time, of all threads of all processes of the node: whoever has the lock on the keeper's folder."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
