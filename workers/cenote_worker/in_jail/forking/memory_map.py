"""What is mapped into this process, and from which file."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_LINES = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) [0-9a-f]+ \S+ (\d+) *(.*)$", re.MULTILINE)

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

    def shared_with_copies(self) -> list[Region]:
        """Memory of which a forked copy has no version of its own: what one writes, the other sees."""
        return [_region(*line) for line in self._lines if line[2][1:2] == b"w" and line[2][3:] == b"s"]


def _region(start: bytes, end: bytes, access: bytes, inode: bytes, file: bytes) -> Region:
    return Region(
        start=int(start, 16),
        end=int(end, 16),
        access=access.decode("ascii"),
        inode=int(inode),
        file=os.fsdecode(file),
    )
