"""Prepares the worker's memory to be copied by a fork.

Free memory: memory that a cell has freed stays in the C library's heap, ten megabytes for a frame of 50. A fork
shares it, so the next cell would copy garbage page by page before it writes over it. So large free stretches are
allocated just before the fork, excluded from it (MADV_DONTFORK, see madvise(2)) and freed after it. The C library
does not report free memory, so pieces are allocated: those within the former heap were free. `malloc_trim` would
return the pages to the kernel, and the next cell would wait for as many new ones.

Huge pages: a fork goes through every small page, the end of a copy does so again, and each write after a fork costs
0.8 to 1.2 µs even when the copy has ended: a tenth of a second for 400 MB of small objects. With huge pages all three
cost almost nothing. Memory that has grown is moved to huge pages while the runtime is idle; requesting them
beforehand would make allocation wait for each. See MADV_COLLAPSE in madvise(2), since Linux 6.1; without it, as in
gVisor, memory stays as it is.

Collection: after the import of a library with a hundred thousand objects Python soon collects garbage, which writes
to each object. After a fork that costs as much as a sweep over all of it, so it is done before.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from mmap import PAGESIZE
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.process.proc_info import MemoryMap
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

PIECE: Final = 2**20
"""Bytes of an allocation with the C library's header. Smaller free stretches stay in the copy."""

MOST_PIECES: Final = 1024
"""Pieces: each takes half a microsecond, and a page of the copy's if it cannot be joined with others."""

HEAP_GROWTH: Final = 2 * PIECE
"""Bytes of heap growth from which on a look is worthwhile."""

_HEAD: Final = 16
"""Bytes of the GNU C library's header of each piece: the size of the previous piece, if that is free, and its own."""

_FLAGS: Final = 7
"""Bits of a size field that are flags."""


class FreeMemory:
    """The free memory of this process's heap, as far as the heap has grown since this was made."""

    def __init__(self) -> None:
        self._base = libc.heap_end()

    def withhold(self) -> Withheld:
        """Allocates the free memory until it is given back. Never raises OSError."""
        end = libc.heap_end()
        return Withheld(_taken(self._base, end) if end - self._base >= HEAP_GROWTH else ())


class Withheld:
    """Memory that is excluded from a fork."""

    def __init__(self, blocks: Sequence[range]) -> None:
        """blocks: addresses that were allocated."""
        self._blocks = blocks
        self._absent: list[range] = []
        for pages in map(_pages_of, blocks):
            try:
                libc.madvise(pages.start, len(pages), libc.MADV_DONTFORK)
            except OSError:  # an emulated kernel lacks it, or there are too many regions: a fork has the rest
                with suppress(OSError):
                    libc.madvise(pages.start, len(pages), libc.MADV_DOFORK)
                break
            self._absent.append(pages)

    @property
    def size(self) -> int:
        """Bytes that are excluded from a fork."""
        return sum(map(len, self._absent))

    def give_back(self) -> None:
        """Called in the process that has the memory."""
        for pages in self._absent:
            libc.madvise(pages.start, len(pages), libc.MADV_DOFORK)
        self._release()

    def make_up(self) -> None:
        """Called in a fork, before anything else: replaces the garbage by zeros. Raises OSError if memory is
        short."""
        for pages in self._absent:
            libc.map_zeros(pages.start, len(pages))
        self._release()

    def _release(self) -> None:
        blocks, self._blocks, self._absent = self._blocks, (), []
        for block in blocks:
            libc.release(block.start)


def _taken(base: int, end: int) -> list[range]:
    """Allocated blocks that were free before. base, end: addresses that they lie between."""
    pieces = list(_pieces(end))
    for piece in pieces:
        if not base <= piece <= end - PIECE:
            libc.release(piece)
    return list(_joined(sorted(piece for piece in pieces if base <= piece <= end - PIECE)))


def _pieces(end: int) -> Iterator[int]:
    """The last piece may be new memory, if nothing else showed that no free one was left. end: of the heap."""
    for _ in range(MOST_PIECES):
        piece = libc.allocate(PIECE - _HEAD)
        if not piece:
            return
        yield piece
        if piece > end - PIECE or _is_last(piece, end):
            return


def _is_last(piece: int, end: int) -> bool:
    """Whether the heap would have to grow for another piece.

    Pieces are taken from the end of the heap when there is no other place, and too little may be left there. If the
    heap grew for each piece, this would never end.
    """
    behind = piece - _HEAD + PIECE
    left = libc.word_at(behind + _HEAD // 2) & ~_FLAGS
    return behind + left == end and left < PIECE + PAGESIZE


def _joined(pieces: Sequence[int]) -> Iterator[range]:
    """Joins adjacent pieces, since the C library's header of each piece has to be in the copy."""
    first = count = 0
    for piece in (*pieces, 0):
        if count and piece == first + count * PIECE:
            count += 1
            continue
        if count:
            yield _as_one(first, count)
        first, count = piece, 1


def _as_one(first: int, count: int) -> range:
    for piece in range(first + PIECE, first + count * PIECE, PIECE):
        libc.release(piece)
    size = count * PIECE - _HEAD
    address = libc.resize(first, size)
    return range(address, address + size) if address else range(first, first + PIECE - _HEAD)


def _pages_of(block: range) -> range:
    """The pages that are entirely in the block."""
    return range(-(-block.start // PAGESIZE) * PAGESIZE, block.stop // PAGESIZE * PAGESIZE)


HUGE_PAGES_GROWTH: Final = 32 * 2**20
"""Bytes of new memory from which on a look is worthwhile; it takes milliseconds per gigabyte."""

LONGEST: Final = 1.5
"""Seconds of CPU time by which the copy is delayed: enough for 4 GB if huge pages are available, for 500 MB if each
has to come from the machine's host.
"""

HUGE: Final = 2**21
"""Bytes of a huge page, of x86-64 and of 64-bit ARM with pages of 4 KiB."""

_PAGES: Final = HUGE // PAGESIZE
_FEWEST: Final = _PAGES - _PAGES // 16
"""Small pages that a huge page must replace at least. A few of each of Python's arenas are never used."""

_ENTRY: Final = 8
_PRESENT: Final = 63
_EXCLUSIVE: Final = 56
_SWAPPED_OR_FILES: Final = 3 << 61
"""Bits of an entry of `/proc/self/pagemap`; see the kernel's Documentation/admin-guide/mm/pagemap.rst."""


def _of_all(bits: int) -> int:
    return int.from_bytes(bits.to_bytes(_ENTRY, "little") * _PAGES, "little")


_ALL_PRESENT: Final = _of_all(1 << _PRESENT)
_NONE_OF: Final = _of_all(_SWAPPED_OR_FILES)

_open, _read_at, _close, _time_used = os.open, os.pread, os.close, time.process_time


class HugePages:
    """The huge pages of this process; its forks have them, too."""

    def __init__(self) -> None:
        self._settled = 0
        """Bytes resident when all possible memory was on huge pages."""
        self._possible = PAGESIZE == 4096

    def gather(self, is_idle: Callable[[], bool], *, alone: bool) -> None:
        """Goes on until all is done, or a request comes. Never raises.

        alone: whether no copy shares this memory. Shared memory is left alone: it would be there twice.
        """
        if not self._possible:
            return
        latest = _time_used() + LONGEST
        try:
            resident = own_memory()
            if resident - (0 if alone else self._settled) < HUGE_PAGES_GROWTH:
                return
            for start in _candidates():
                if not is_idle() or _time_used() > latest:
                    return
                _collapse(start)
            self._settled = resident
        except OSError as error:
            # ENOMEM means that there is no memory for it now; there may be later.
            self._possible = error.errno == errno.ENOMEM


def _collapse(start: int) -> None:
    """Raises OSError if the kernel lacks it, or there is no memory for it."""
    try:
        libc.madvise(start, HUGE, libc.MADV_COLLAPSE)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EBUSY}:  # the kernel is using some of its pages right now
            raise


def own_memory() -> int:
    """Bytes of this process's memory that belong to no file."""
    handle = _open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _size, resident, of_files, *_rest = _read_at(handle, 200, 0).split()
    finally:
        _close(handle)
    return (int(resident) - int(of_files)) * PAGESIZE


def _candidates() -> Iterator[int]:
    """Places where a huge page could replace small pages that are present and not shared, or already has."""
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


MANY_MODULES: Final = 200
"""Modules. A collection takes some 0.1 s after `import torch`, whose 1,500 modules took 1.7 s."""

_modules = sys.modules
_collect = gc.collect


class Imported:
    """How many modules there were at our last garbage collection."""

    def __init__(self, is_collecting: Callable[[], bool] = gc.isenabled) -> None:
        """is_collecting: whether the user's program has the collector on."""
        self._is_collecting = is_collecting
        self._known = len(_modules)

    def settle(self) -> bool:
        """Collects garbage if many modules have been imported since the last time, unless a user has turned the
        collector off."""
        if len(_modules) - self._known < MANY_MODULES or not self._is_collecting():
            return False
        self._known = len(_modules)
        _collect()
        return True


_FORK_SECONDS: Final = 0.002
_SECONDS_PER_BYTE: Final = 0.2e-9


def cost_of_copy(latest: float) -> float:
    """Seconds of CPU time that a copy of this process costs: as the latest one did, or more, as this memory lets
    expect. Making one often takes less, but the first garbage collection after it writes to each page of objects."""
    return max(latest, _FORK_SECONDS + _SECONDS_PER_BYTE * own_memory())
