"""What is mapped into this process, and from which file."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_LINES = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) [0-9a-f]+ \S+ (\d+) *(.*)$", re.MULTILINE)

_IS_SHARED = re.compile(rb"[0-9a-f]+-[0-9a-f]+ .w.s ").match
"""Of a line: whether a forked copy has no version of its own of it. What one writes there, the other sees."""

_QUERY = struct.Struct("=9Q4I2Q")
"""`struct procmap_query` of <linux/fs.h>: size, flags, address; then of what was found start, end, flags, size of a
page, offset, inode, two numbers of the device; and four members for names, which are not asked for."""

_ASKED = struct.Struct("=3Q")
_FOUND = struct.Struct("=3Q16xQ")
"""The first members, and the ones behind them up to the inode."""

_PROCMAP_QUERY = 0xC0686611
_WRITABLE_OR_NEXT = 0x02 | 0x10
_SHARED = 0x08
"""What to look for: at this address, or the next one behind it. Of what is found the same bits tell what it is."""

_ioctl = fcntl.ioctl

_NO_FILES = b"[", b"/memfd:", b"/dev/zero", b"/SYSV"
"""How memory is called that has an inode and lies in no folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """start, end: addresses, the latter not included. access: as in `/proc`, such as `rw-p`. file: or empty."""

    start: int
    end: int
    access: str
    inode: int
    file: str

    @property
    def is_code(self) -> bool:
        return self.access[2] == "x" and self.file.startswith("/")


class MemoryMap:
    """A picture of one moment. A process with many libraries has thousands of regions: few become objects."""

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
        """Inodes and paths of files that are mapped; None where that is closed to the process."""
        if not self._lines:
            return None
        named = [line for line in self._lines if line[4] and not line[4].startswith(_NO_FILES)]
        return frozenset(int(line[3]) for line in named), frozenset(os.fsdecode(line[4]) for line in named)

    def of_no_file(self) -> list[Region]:
        """Private writable memory, with all that Python and libraries have allocated."""
        return [_region(*line) for line in self._lines if line[2] == b"rw-p" and line[3] == b"0"]


def shared_files() -> frozenset[int]:
    """Inodes of files that this process may be writing to through memory; none where that is closed to it.

    Asked before each copy. The kernel takes a millisecond to write all regions of a process with several hundred of
    them as text, and a hundredth of that to look for such as these (since Linux 6.11).
    """
    with suppress(PermissionError), open("/proc/self/maps", "rb") as lines:
        try:
            return frozenset(found[3] for found in _found(lines.fileno(), _WRITABLE_OR_NEXT | _SHARED))
        except OSError:  # the kernel cannot look by itself; or gVisor's
            return frozenset(int(line.split(None, 5)[4]) for line in lines if _IS_SHARED(line))
    return frozenset()


def private_memory(maps: int) -> Iterator[range]:
    """Addresses of private writable memory that belongs to no file. maps: descriptor of a process's `maps`.

    Raises OSError where the kernel cannot look by itself.
    """
    for start, end, flags, inode in _found(maps, _WRITABLE_OR_NEXT):
        if not (flags & _SHARED or inode):
            yield range(start, end)


def _found(maps: int, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, flags and inode of each region that is wanted. Raises OSError."""
    address, query = 0, bytearray(_QUERY.size)
    while True:
        _ASKED.pack_into(query, 0, _QUERY.size, wanted, address)
        try:
            _ioctl(maps, _PROCMAP_QUERY, query)
        except FileNotFoundError:  # there is none from there on
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
