"""Data of libraries, kept in a file in memory instead of memory of the zygote's own.

The loader writes addresses into each library's data, which makes that memory of the process: two stretches for each
of a hundred libraries, and a fork takes as long for each of them as for hundreds of pages. Afterwards hardly any is
written again, so it can as well be pages of a file. See `common_heap_unsafe` for why that is better.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cenote_worker.zygote.common_heap_unsafe import map_file

_REGION: Final = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ +(/\S.*\.so\S*)$")

_ACCESS: Final = {
    b"r--p": mmap.PROT_READ,
    b"rw-p": mmap.PROT_READ | mmap.PROT_WRITE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Region:
    start: int
    end: int
    access: int
    file: bytes


class CommonLibraries:
    """Those that are loaded between its making and `settle`.

    The ones from before stay as they are: the interpreter and the C library are at work while memory is exchanged.
    """

    def __init__(self, host_proc: int) -> None:
        """host_proc: a descriptor of `/proc`."""
        self._proc = host_proc
        self._before = {region.file for region in _written(host_proc)}

    def settle(self) -> None:
        """To be called when no other thread runs. What this process or a fork of it writes later is its own."""
        regions = [region for region in _written(self._proc) if region.file not in self._before]
        file = os.memfd_create("cenote-libraries", os.MFD_CLOEXEC)
        try:
            at = 0
            for region in regions:
                at = _copy(region, file, at)
            at = 0
            for region in regions:
                map_file(region.start, region.end, region.access, file, at, shared=False)
                at += region.end - region.start
        finally:
            os.close(file)


def _copy(region: _Region, file: int, at: int) -> int:
    size = region.end - region.start
    data = memoryview((ctypes.c_char * size).from_address(region.start))
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
    return at


def _written(proc: int) -> Iterator[_Region]:
    """Data of libraries that is not as it is in their files."""
    region: _Region | None = None
    with open(os.open("self/smaps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as lines:
        for line in lines:
            if (found := _REGION.match(line)) is not None:
                region = _region(found)
            elif b"-" in line.partition(b" ")[0]:
                region = None
            elif region is not None and line.startswith(b"Anonymous:") and int(line.split()[1]):
                yield region


def _region(found: re.Match[bytes]) -> _Region | None:
    access = _ACCESS.get(found[3])
    if access is None:
        return None
    return _Region(start=int(found[1], 16), end=int(found[2], 16), access=access, file=found[4])
