"""Data of libraries, kept in a file in memory instead of memory of the zygote's own.

The loader writes addresses into each library's data, which makes that memory of the process: two stretches for each
of a hundred libraries, and a fork takes as long for each of them as for hundreds of pages. Afterwards hardly any is
written again, so it can as well be pages of a file. See `common_heap_unsafe` for why that is better.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cenote_worker.zygote.common_heap_unsafe import SEALS, map_file

_LIBRARY: Final = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ +(/.*\.so[^/\n]*)\n")
_WRITTEN: Final = re.compile(rb"^Anonymous: +[1-9]", re.MULTILINE)
_LAST_LINE: Final = b"\nVmFlags:"
"""Of what `smaps` says of a region, as long as kernels add nothing behind it."""

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
        self._before = {found[4] for found in _LIBRARY.finditer(_read(host_proc, "maps"))}

    def settle(self) -> None:
        """To be called when no other thread runs. What this process or a fork of it writes later is its own."""
        regions = [region for region in _written(self._proc) if region.file not in self._before]
        file = os.memfd_create("cenote-libraries", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            offsets = [_append(region, file) for region in regions]
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
            for region, offset in zip(regions, offsets, strict=True):
                map_file(region.start, region.end, region.access, file, offset, shared=False)
        finally:
            os.close(file)


def _append(region: _Region, file: int) -> int:
    """Gives where in the file its pages are."""
    offset = os.lseek(file, 0, os.SEEK_CUR)
    data = memoryview((ctypes.c_char * (region.end - region.start)).from_address(region.start)).cast("B")
    while data:
        data = data[os.write(file, data) :]
    return offset


def _written(proc: int) -> Iterator[_Region]:
    """Data of libraries that is not as it is in their files."""
    for text in _read(proc, "smaps").split(_LAST_LINE):
        found = _LIBRARY.search(text)
        if found is not None and found[3] in _ACCESS and _WRITTEN.search(text):
            access = _ACCESS[found[3]]
            yield _Region(start=int(found[1], 16), end=int(found[2], 16), access=access, file=found[4])


def _read(proc: int, name: str) -> bytes:
    with open(os.open(f"self/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as lines:
        return lines.read()
