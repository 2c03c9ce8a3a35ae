"""Shared values in the descriptor store of a node: in memory, or unused ones on disk; and leases on them.

Either way a value is an entry with a descriptor. The keys of entries say which are in memory, and the times of its
memory file say when a value was last used: so the processes of a node agree without any messages. Leases are entries
beside the values, one each, for the same reason. Files on disk have no name, and last as long as any process has a
descriptor of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_security.sealed_memory import SealedMemory, copy_bytes
from cenote_worker.descriptor_store.client import DescriptorStoreClient, StoredEntry
from cenote_worker.descriptor_store.message import close_all
from cenote_worker.process.file_systems import kind_of
from cenote_worker.supervisor.start import machine_memory

LEASES: Final = "lease/"


class ReferenceLeases:
    """name: of a value, `TENANT/REFERENCE`. A lease ends at a time of `clock`."""

    def __init__(self, descriptor_store: DescriptorStoreClient, clock: Callable[[], float]) -> None:
        self._descriptor_store = descriptor_store
        self._clock = clock
        self._loose: frozenset[str] = frozenset()

    def extend(self, name: str, holder: str, seconds: float) -> None:
        """A lease never becomes shorter."""
        key = _key(name, holder)
        known = self._descriptor_store.get(key)
        until = max(self._clock() + seconds, float(known.record) if known is not None else 0.0)
        self._descriptor_store.put(key, repr(until).encode())

    def has(self, name: str, holder: str) -> bool:
        return self._descriptor_store.get(_key(name, holder)) is not None

    def drop(self, name: str, holder: str) -> None:
        self._descriptor_store.drop(_key(name, holder))

    def ends(self, name: str) -> Iterator[tuple[str, float]]:
        """The holders of leases that still count, and when these end."""
        for key in self._descriptor_store.keys(_key(name, "")):
            kept = self._descriptor_store.get(key)
            if kept is not None and float(kept.record) > self._clock():
                yield _parts(key)[1], float(kept.record)

    def of(self, holders: str) -> list[tuple[str, str]]:
        """The leases of holders whose names begin with this: the value's name, and the holder."""
        held = map(_parts, self._descriptor_store.keys(LEASES))
        return [(name, holder) for name, holder in held if holder.startswith(holders)]

    def sweep(self, values: set[str]) -> set[str]:
        """Drops expired leases, and those on none of `values`. Returns the values that are held.

        A value is put after its first lease, so a lease on nothing goes only when it was that at the last sweep too.
        """
        now, held, loose = self._clock(), set[str](), set[str]()
        for key in self._descriptor_store.keys(LEASES):
            name = _parts(key)[0]
            kept = self._descriptor_store.get(key)
            if kept is None or float(kept.record) <= now or (name not in values and key in self._loose):
                self._descriptor_store.drop(key)
                continue
            held.add(name)
            if name not in values:
                loose.add(key)
        self._loose = frozenset(loose)
        return held


def _key(name: str, holder: str) -> str:
    return f"{LEASES}{name}/{holder}"


def _parts(key: str) -> tuple[str, str]:
    """The name of the value, and the holder, whose own name may have slashes in it."""
    tenant, reference, holder = key.removeprefix(LEASES).split("/", 2)
    return f"{tenant}/{reference}", holder


_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""File systems that are memory themselves."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_PART_OF_FREE: Final = 2
"""One value takes at most this part of the free space: the rest of the machine uses that disk too."""


class ValueDisk:
    """The disk that a folder is on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, memory: SealedMemory) -> SealedMemory:
        """A read-only copy of a value. Raises UnavailableError where the disk has no room for it."""
        self._check(memory.size)
        try:
            return self._written(memory)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise UnavailableError(f"{self._no_room(memory.size)}: {error.strerror}") from error

    def _written(self, memory: SealedMemory) -> SealedMemory:
        with TemporaryFile(dir=self._folder) as file:
            if memory.size:
                # Now, so that the caller gets the error of a full disk, instead of the kernel on writing the pages.
                os.posix_fallocate(file.fileno(), 0, memory.size)
                copy_bytes(memory.fileno(), 0, memory.size, file.fileno())
            os.fchmod(file.fileno(), 0o400)
            reading = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
            return SealedMemory(reading, memory.size)

    def _check(self, size: int) -> None:
        if (kind := kind_of(self._folder.stat().st_dev)) in _MEMORY:
            raise UnavailableError(f"{self._no_room(size)}: it is on {kind}, which is memory too")
        status = os.statvfs(self._folder)
        free = status.f_bavail * status.f_frsize
        if size > free // _PART_OF_FREE:
            raise UnavailableError(
                f"{self._no_room(size)}: {free} bytes are free, and one value gets half of that"
            )

    def _no_room(self, size: int) -> str:
        return (
            f"the memory for shared values is full, and {self._folder} has no room for {size} bytes of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory:
    """A value that could go to disk. used: when it was used last, in nanoseconds of one clock.

    held: whether a runtime has it too. Then writing it to disk would free no memory.
    """

    name: str
    size: int
    used: int
    held: bool


def evicted(values: Iterable[InMemory], lacking: int) -> Sequence[InMemory] | None:
    """The values that go to disk, least recently used first, so that `lacking` bytes become free.

    None when all that could go are not enough: then none of them has to.
    """
    idle = sorted((value for value in values if not value.held), key=lambda value: value.used)
    chosen: list[InMemory] = []
    for value in idle:
        if lacking <= 0:
            break
        chosen.append(value)
        lacking -= value.size
    return chosen if lacking <= 0 else None


VALUES: Final = "value/"
SPILLED: Final = "spilled/"
"""The place of entries whose values are on disk. A value that moves is in both places for a moment, never in none."""

RUNTIMES: Final = "runtime/"
INJECTION: Final = "/injection/"
"""The place of a runtime's injections."""


class ValueStore:
    """name: of a value, `TENANT/REFERENCE`. room: bytes of memory for all, None for half of what the machine has."""

    def __init__(self, descriptor_store: DescriptorStoreClient, room: int | None) -> None:
        self._descriptor_store = descriptor_store
        self._room = _half_of_memory() if room is None else room
        self._disk = ValueDisk(descriptor_store.folder)

    def put(self, name: str, record: bytes, memory: SealedMemory) -> None:
        """The caller still owns its memory. Raises UnavailableError where neither memory nor disk has room for it."""
        _note_use(memory.fileno())
        with _turn(self._descriptor_store.folder):
            if self._make_room(memory.size):
                self._descriptor_store.put(VALUES + name, record, [memory.fileno()])
            else:  # what is in memory is in use; on disk, this value disturbs none of it
                self._put_on_disk(name, record, memory)

    def get(self, name: str) -> StoredEntry | None:
        """The caller owns the descriptor."""
        # In this order: one that moves to disk meanwhile is there before it is gone here.
        return self._descriptor_store.get(VALUES + name) or self._descriptor_store.get(SPILLED + name)

    def use(self, name: str) -> StoredEntry | None:
        """The same, and a note that it was used."""
        kept = self.get(name)
        if kept is not None:
            _note_use(kept.descriptors[0])
        return kept

    def drop(self, name: str) -> None:
        """In the order in which it moves, so that a value that moves to disk meanwhile does not stay there."""
        self._descriptor_store.drop(VALUES + name)
        self._descriptor_store.drop(SPILLED + name)

    def names(self, tenant: str = "") -> list[str]:
        """Of one tenant's values, or of all; in order."""
        prefix = f"{tenant}/" if tenant else ""
        kinds = (VALUES, SPILLED)
        found = {
            key.removeprefix(kind) for kind in kinds for key in self._descriptor_store.keys(kind + prefix)
        }
        return sorted(found)

    # -- room --

    def _make_room(self, size: int) -> bool:
        """Whether memory has this much room now. Raises UnavailableError when the disk is full."""
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
        kept = self._descriptor_store.get(VALUES + name)
        if kept is None:  # it was dropped meanwhile
            return
        with SealedMemory(kept.descriptors[0], value_size(name)) as memory:
            self._put_on_disk(name, kept.record, memory)
        self._descriptor_store.drop(VALUES + name)

    def _put_on_disk(self, name: str, record: bytes, memory: SealedMemory) -> None:
        with self._disk.write(memory) as written:
            self._descriptor_store.put(SPILLED + name, record, [written.fileno()])

    def _used(self) -> int:
        return sum(map(value_size, self._descriptor_store.keys(VALUES)))

    def _in_memory(self) -> Iterator[InMemory]:
        held = self._held_by_runtimes()
        for key in self._descriptor_store.keys(VALUES):
            kept = self._descriptor_store.get(key)
            if kept is None:
                continue
            status = os.fstat(kept.descriptors[0])
            close_all(kept.descriptors)
            name = key.removeprefix(VALUES)
            yield InMemory(
                name=name,
                size=value_size(name),
                used=status.st_mtime_ns,
                held=(status.st_dev, status.st_ino) in held,
            )

    def _held_by_runtimes(self) -> set[tuple[int, int]]:
        """The memory of the injections of this node's runtimes: stored for later jails, and mapped now."""
        held = set()
        for key in self._descriptor_store.keys(RUNTIMES):
            kept = self._descriptor_store.get(key) if INJECTION in key else None
            for descriptor in kept.descriptors if kept is not None else ():
                status = os.fstat(descriptor)
                held.add((status.st_dev, status.st_ino))
            if kept is not None:
                close_all(kept.descriptors)
        return held


def value_size(name: str) -> int:
    """Bytes of the value, from its reference."""
    return int(name.split("_")[-2], 16)


def _note_use(descriptor: int) -> None:
    now = time.time_ns()  # the kernel's own time is some milliseconds old
    with suppress(OSError):  # without permission the value counts as old as its memory
        os.utime(descriptor, ns=(now, now))


def _half_of_memory() -> int:
    """Of the machine, or of the container that this process is in."""
    return machine_memory() // 2


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One at a time, among all threads of all processes of the node: takes the lock on the store's folder."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
