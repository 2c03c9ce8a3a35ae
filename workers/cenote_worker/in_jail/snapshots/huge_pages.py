"""Memory that has become much, put on huge pages while nobody waits and before it is copied.

A fork goes through every small page, the end of a copy does so again, and who writes to one behind a fork pays for it
even when the copy has gone: 0.8 to 1.2 µs, for 400 MB of small objects a tenth of a second, where what a cell does
with them may take a third of that. On huge pages the three cost next to nothing. Libraries ask for huge pages for
large arrays; Python's own objects, a `bytearray` and what C libraries allocate have none. Asking for them beforehand
would make whoever allocates wait for each: where the machine has to get one from its host, for milliseconds.

See MADV_COLLAPSE in madvise(2), of Linux 6.1; where there is none, as in gVisor, memory stays as it is.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from mmap import PAGESIZE
from typing import Final

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.forking.memory_map import MemoryMap
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

GROWTH: Final = 32 * 2**20
"""Bytes of new memory from which on it is worth a look, which takes milliseconds per gigabyte."""

LONGEST: Final = 1.5
"""Seconds of CPU time for which the copy is made to wait: enough for 4 GB where huge pages are at hand, for 500 MB
where each has to be got from the machine's host.
"""

HUGE: Final = 2**21
"""Bytes of a huge page, of x86-64 and of 64-bit ARM with pages of 4 KiB."""

_PAGES: Final = HUGE // PAGESIZE
_FEWEST: Final = _PAGES - _PAGES // 16
"""Of those that a huge page takes the place of. A few of each of Python's arenas are never used."""

_ENTRY: Final = 8
_PRESENT: Final = 63
_EXCLUSIVE: Final = 56
_SWAPPED_OR_FILES: Final = 3 << 61
"""Bits of an entry of `/proc/self/pagemap`; see the kernel's Documentation/admin-guide/mm/pagemap.rst."""


def _of_all(bits: int) -> int:
    return int.from_bytes(bits.to_bytes(_ENTRY, "little") * _PAGES, "little")


_ALL_PRESENT: Final = _of_all(1 << _PRESENT)
_NONE_OF: Final = _of_all(_SWAPPED_OR_FILES)

_open, _read_at, _close, _taken = os.open, os.pread, os.close, time.process_time


class HugePages:
    """Those of this process; its forks have them, too."""

    def __init__(self) -> None:
        self._settled = 0
        """Bytes that it had when all that could be put on huge pages was."""
        self._possible = PAGESIZE == 4096

    def gather(self, is_idle: Callable[[], bool], *, alone: bool) -> None:
        """Goes on until all is done, or somebody wants something. Never raises.

        alone: whether no copy shares this memory. What one shares stays: it would be there twice.
        """
        if not self._possible:
            return
        latest = _taken() + LONGEST
        try:
            resident = _resident()
            if resident - (0 if alone else self._settled) < GROWTH:
                return
            for start in _candidates():
                if not is_idle() or _taken() > latest:
                    return
                _collapse(start)
            self._settled = resident
        except OSError as error:
            # Otherwise there is no memory for it, which may be again.
            self._possible = error.errno == errno.ENOMEM


def _collapse(start: int) -> None:
    """Raises OSError where that is unknown, or there is no memory for it."""
    try:
        libc.madvise(start, HUGE, libc.MADV_COLLAPSE)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EBUSY}:  # the kernel is at some of its pages just now
            raise


def _resident() -> int:
    """Bytes of this process's memory that belong to no file."""
    handle = _open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _size, resident, of_files, *_rest = _read_at(handle, 200, 0).split()
    finally:
        _close(handle)
    return (int(resident) - int(of_files)) * PAGESIZE


def _candidates() -> Iterator[int]:
    """Where a huge page could take the place of small ones that are there and nobody else's, or lies already."""
    pagemap = _open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for region in MemoryMap().of_no_file():
            for place in range(-(-region.start // HUGE) * HUGE, region.end - HUGE + 1, HUGE):
                entries = _read_at(pagemap, _PAGES * _ENTRY, place // PAGESIZE * _ENTRY)
                if _are_own(int.from_bytes(entries, "little")):
                    yield place
    finally:
        _close(pagemap)


def _are_own(entries: int) -> bool:
    present = entries & _ALL_PRESENT
    others = present & ~(entries << (_PRESENT - _EXCLUSIVE))
    return present.bit_count() >= _FEWEST and not others and not entries & _NONE_OF
