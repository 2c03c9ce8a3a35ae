"""What the kernel says about this process in `/proc/self`: mappings, threads, and positions of open files.

A thread's name says little: most pools keep the name of the program. But a waiting thread has the return address into
its library on its stack, and the kernel gives the stack pointer (`/proc/self/task/<id>/syscall`). The first return
address that is not in the C library or the C++ runtime belongs to the library that started the thread.

A copy of the process shares each open file, and its position, with the original: bytes that one reads, the other
misses. A reader in the middle of a file would silently go on in the wrong place. So positions are recorded and
restored.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import stat
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.threads import TASKS, thread_count

__builtins__ = BUILTINS

_LINES = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) [0-9a-f]+ \S+ (\d+) *(.*)$", re.MULTILINE)

_IS_SHARED = re.compile(rb"[0-9a-f]+-[0-9a-f]+ .w.s ").match
"""Matches a line of a mapping that a forked copy shares: what one process writes there, the other sees."""

_QUERY = struct.Struct("=9Q4I2Q")
"""`struct procmap_query` of <linux/fs.h>: size, flags, address; then of the result start, end, flags, page size,
offset, inode, two device numbers; and four members for names, which are not requested."""

_ASKED = struct.Struct("=3Q")
_FOUND = struct.Struct("=3Q16xQ")
"""The first members, and the following ones up to the inode."""

_PROCMAP_QUERY = 0xC0686611
_WRITABLE_OR_NEXT = 0x02 | 0x10
_SHARED = 0x08
"""What to look for: the mapping at this address, or the next one after it. The same bits describe the result."""

_ioctl = fcntl.ioctl

_NO_FILES = b"[", b"/memfd:", b"/dev/zero", b"/SYSV"
"""Prefixes of names of memory that has an inode but is in no folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """start, end: addresses, the latter excluded. access: as in `/proc`, such as `rw-p`. file: empty for none."""

    start: int
    end: int
    access: str
    inode: int
    file: str

    @property
    def is_code(self) -> bool:
        return self.access[2] == "x" and self.file.startswith("/")


class MemoryMap:
    """The mappings at one moment. A process with many libraries has thousands: objects are made only for a few."""

    def __init__(self) -> None:
        self._lines: list[tuple[bytes, bytes, bytes, bytes, bytes]] = []
        with suppress(PermissionError), open("/proc/self/maps", "rb") as lines:  # closed at `landlock`
            self._lines = _LINES.findall(lines.read())
        self._starts = [int(line[0], 16) for line in self._lines]

    def at(self, address: int) -> Region | None:
        position = bisect_right(self._starts, address) - 1
        if position < 0:
            return None
        region = _region(*self._lines[position])
        return region if address < region.end else None

    def files(self) -> tuple[frozenset[int], frozenset[str]] | None:
        """Inodes and paths of files that are mapped; None if the process may not read its mappings."""
        if not self._lines:
            return None
        named = [line for line in self._lines if line[4] and not line[4].startswith(_NO_FILES)]
        return frozenset(int(line[3]) for line in named), frozenset(os.fsdecode(line[4]) for line in named)

    def of_no_file(self) -> list[Region]:
        """Private writable memory: everything that Python and libraries have allocated."""
        return [_region(*line) for line in self._lines if line[2] == b"rw-p" and line[3] == b"0"]


def shared_files() -> frozenset[int]:
    """Inodes of files that this process may be writing to through memory; empty if it may not read its mappings.

    Called before each copy. For a process with several hundred regions, the kernel takes a millisecond to write all
    of them as text, and a hundredth of that to look for these (since Linux 6.11).
    """
    with suppress(PermissionError), open("/proc/self/maps", "rb") as lines:
        try:
            return frozenset(found[3] for found in _found(lines.fileno(), _WRITABLE_OR_NEXT | _SHARED))
        except OSError:  # the kernel lacks this query; or it is gVisor's
            return frozenset(int(line.split(None, 5)[4]) for line in lines if _IS_SHARED(line))
    return frozenset()


def private_memory(maps: int) -> Iterator[range]:
    """Addresses of private writable memory that belongs to no file. maps: descriptor of a process's `maps`.

    Raises OSError if the kernel lacks this query.
    """
    for start, end, flags, inode in _found(maps, _WRITABLE_OR_NEXT):
        if not (flags & _SHARED or inode):
            yield range(start, end)


def _found(maps: int, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, flags and inode of each region that matches. Raises OSError."""
    address, query = 0, bytearray(_QUERY.size)
    while True:
        _ASKED.pack_into(query, 0, _QUERY.size, wanted, address)
        try:
            _ioctl(maps, _PROCMAP_QUERY, query)
        except FileNotFoundError:  # there are no more
            return
        found = _FOUND.unpack_from(query, _ASKED.size)
        address = found[1]
        yield found


def _region(start: bytes, end: bytes, access: bytes, inode: bytes, file: bytes) -> Region:
    return Region(
        start=int(start, 16),
        end=int(end, 16),
        access=access.decode("ascii"),
        inode=int(inode),
        file=os.fsdecode(file),
    )


_listdir = os.listdir

_STACK_BYTES = 16 * 2**10
"""Bytes of a stack that are looked at. A waiting pool thread is a few hundred bytes deep."""

_RUNTIMES = ("libc.so", "libc-", "libpthread", "libstdc++", "libgcc_s", "ld-linux", "libm.so")
"""They run on behalf of a caller, whose address comes next. musl is one file, named like its loader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeThread:
    """name: from the kernel. library: file name of the code that it runs; empty if unknown because it is running or
    has ended.
    """

    id: int
    name: str
    library: str


def other_threads(known: Collection[int] = ()) -> list[int]:
    """The kernel's ids of all threads but the main one and the known ones.

    If a process may not list its own threads, as with `landlock`, it can still learn their number: each unknown
    thread then has the id 0.
    """
    main = os.getpid()
    try:
        ids = map(int, _listdir(TASKS))
    except PermissionError:
        return [0] * (thread_count() - 1 - len(known))
    return [id for id in ids if id != main and id not in known]


def is_single_threaded() -> bool:
    """Whether the calling thread is the only one. Cheaper than a list of threads."""
    return thread_count() == 1


def waits(task: int) -> bool:
    """Whether a thread waits in a system call. False when it has ended, and if the kernel does not say."""
    return _read(task, "syscall").split()[:1] not in ([], [b"running"])


def native_threads(threads: Iterable[int], mapped: MemoryMap) -> list[NativeThread]:
    return [NativeThread(id=id, name=_name(id), library=_library(id, mapped)) for id in threads]


def _name(task: int) -> str:
    return _read(task, "comm").decode(errors="replace").strip()


def _library(task: int, mapped: MemoryMap) -> str:
    words = _read(task, "syscall").split()
    if len(words) < 3:  # it runs, so its stack changes
        return ""
    for address in _stack(int(words[-2], 16), mapped):
        region = mapped.at(address)
        if region is not None and region.is_code:
            name = region.file.rpartition("/")[2]
            if not name.startswith(_RUNTIMES):
                return name
    return ""


def _stack(pointer: int, mapped: MemoryMap) -> Iterator[int]:
    """The words of a stack, from its innermost frame outwards. Read as a file, so that a bad address is an error."""
    region = mapped.at(pointer)
    if region is None:
        return
    size = min(region.end - pointer, _STACK_BYTES) & ~7
    with suppress(OSError), open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(pointer)
        for (word,) in struct.iter_unpack("@Q", (memory.read(size) or b"")[: size & ~7]):
            yield word


def _read(task: int, file: str) -> bytes:
    """Empty when the thread has ended, and if the kernel has no such file, as gVisor."""
    with suppress(OSError), open(f"{TASKS}/{task}/{file}", "rb") as lines:
        return lines.read()
    return b""


_FOLDER = "/proc/self/fd"
_limits = resource.getrlimit
_list_folder, _fstat, _lseek = os.listdir, os.fstat, os.lseek

Positions = Mapping[int, "Position"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """file: device and inode, which identify the file. at: bytes from its beginning."""

    file: tuple[int, int]
    at: int


def descriptors() -> Iterable[int]:
    """The numbers of all open descriptors, and maybe some that are not open."""
    try:
        return map(int, _list_folder(_FOLDER))
    except PermissionError:  # at `landlock`
        return range(_limits(resource.RLIMIT_NOFILE)[0])


def open_files() -> frozenset[tuple[int, int]]:
    """Device and inode of all open descriptors."""
    found = set[tuple[int, int]]()
    for number in descriptors():
        with suppress(OSError):
            status = _fstat(number)
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def file_positions() -> Positions:
    """The positions of all regular files, by descriptor. Call it right before a fork."""
    return {number: found for number in descriptors() if (found := _position(number))}


def position(number: int, status: os.stat_result) -> Position:
    """status: of a regular file or a folder that is open under this number. Raises OSError."""
    return Position(file=(status.st_dev, status.st_ino), at=_lseek(number, 0, os.SEEK_CUR))


def restore_positions(positions: Positions) -> list[int]:
    """In a copy that becomes the worker. Returns the descriptors that now belong to another file, or to none."""
    return [number for number, position in positions.items() if not _go_to(number, position)]


def _position(number: int) -> Position | None:
    with suppress(OSError):
        status = _fstat(number)
        if stat.S_ISREG(status.st_mode):
            return position(number, status)
    return None


def _go_to(number: int, position: Position) -> bool:
    with suppress(OSError):
        status = _fstat(number)
        if (status.st_dev, status.st_ino) == position.file:
            _lseek(number, position.at, os.SEEK_SET)
            return True
    return False
