"""The worker's memory, made ready to be copied by a fork.

Free memory: what a cell has given back lies in the C library's heap, ten megabytes for a frame of 50. A fork shares
it, so the next cell would copy garbage page by page before it writes over it. So large free stretches are taken
just before the fork, kept out of it (MADV_DONTFORK, see madvise(2)) and given back after it. The C library does not
say what is free, so it is asked for pieces: those that lie where its heap was before were free. `malloc_trim` would
give the pages back to the kernel, and the next cell would wait for as many new ones.

Huge pages: a fork goes through every small page, the end of a copy does so again, and each write after a fork pays
0.8 to 1.2 µs even when the copy has gone: a tenth of a second for 400 MB of small objects. On huge pages the three
cost next to nothing. Memory that has grown is put on them while the runtime is idle; asking for them beforehand
would make allocation wait for each. See MADV_COLLAPSE in madvise(2), of Linux 6.1; where there is none, as in
gVisor, memory stays as it is.

Collection: a library with a hundred thousand objects has Python look through everything soon after its import,
which writes to each object. After a fork that costs as much as a sweep over all of it, so it is done before.
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
"""Bytes of what is asked for, with what the C library has before it. Smaller free stretches stay in the copy."""

MOST_PIECES: Final = 1024
"""Pieces: each takes half a microsecond, and a page of the copy's if it cannot be joined with others."""

HEAP_GROWTH: Final = 2 * PIECE
"""Bytes by which the heap has grown, from which on it is worth a look."""

_HEAD: Final = 16
"""Bytes that the GNU C library has before each piece: the size of the one before it, if that is free, and its own."""

_FLAGS: Final = 7
"""Bits of a size that say something else."""


class FreeMemory:
    """That of this process's heap, as far as it has grown since this was made."""

    def __init__(self) -> None:
        self._base = libc.heap_end()

    def withhold(self) -> Withheld:
        """What is free, until it is given back. Never raises OSError."""
        end = libc.heap_end()
        return Withheld(_taken(self._base, end) if end - self._base >= HEAP_GROWTH else ())


class Withheld:
    """What a fork that happens now does not have."""

    def __init__(self, blocks: Sequence[range]) -> None:
        """blocks: addresses that were allocated."""
        self._blocks = blocks
        self._absent: list[range] = []
        for pages in map(_pages_of, blocks):
            try:
                libc.madvise(pages.start, len(pages), libc.MADV_DONTFORK)
            except (
                OSError
            ):  # an emulated kernel's that cannot do so; or there are too many regions: a fork has the rest
                with suppress(OSError):
                    libc.madvise(pages.start, len(pages), libc.MADV_DOFORK)
                break
            self._absent.append(pages)

    @property
    def size(self) -> int:
        """Bytes that a fork does without."""
        return sum(map(len, self._absent))

    def give_back(self) -> None:
        """In the process that has it."""
        for pages in self._absent:
            libc.madvise(pages.start, len(pages), libc.MADV_DOFORK)
        self._release()

    def make_up(self) -> None:
        """In a fork, before anything else: what was garbage is zeros. Raises OSError where there is no memory."""
        for pages in self._absent:
            libc.map_zeros(pages.start, len(pages))
        self._release()

    def _release(self) -> None:
        blocks, self._blocks, self._absent = self._blocks, (), []
        for block in blocks:
            libc.release(block.start)


def _taken(base: int, end: int) -> list[range]:
    """Blocks that were free, and are allocated now. base, end: addresses that they lie between."""
    pieces = list(_pieces(end))
    for piece in pieces:
        if not base <= piece <= end - PIECE:
            libc.release(piece)
    return list(_joined(sorted(piece for piece in pieces if base <= piece <= end - PIECE)))


def _pieces(end: int) -> Iterator[int]:
    """The last one may be new memory, if nothing else has told that there is nothing more. end: of the heap."""
    for _ in range(MOST_PIECES):
        piece = libc.allocate(PIECE - _HEAD)
        if not piece:
            return
        yield piece
        if piece > end - PIECE or _is_last(piece, end):
            return


def _is_last(piece: int, end: int) -> bool:
    """Whether the heap would have to grow for another one.

    Pieces are taken from its end when there is no other place, and too little may be left there. If it grew for that
    each time, it would for ever.
    """
    behind = piece - _HEAD + PIECE
    left = libc.word_at(behind + _HEAD // 2) & ~_FLAGS
    return behind + left == end and left < PIECE + PAGESIZE


def _joined(pieces: Sequence[int]) -> Iterator[range]:
    """Those that lie side by side as one, since what the C library notes of each has to be in the copy."""
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
    """Those that are all its own."""
    return range(-(-block.start // PAGESIZE) * PAGESIZE, block.stop // PAGESIZE * PAGESIZE)


HUGE_PAGES_GROWTH: Final = 32 * 2**20
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

_open, _read_at, _close, _time_used = os.open, os.pread, os.close, time.process_time


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
        latest = _time_used() + LONGEST
        try:
            resident = _resident()
            if resident - (0 if alone else self._settled) < HUGE_PAGES_GROWTH:
                return
            for start in _candidates():
                if not is_idle() or _time_used() > latest:
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


MANY_MODULES: Final = 200
"""Modules. Some 0.1 s after `import torch`, whose 1,500 took 1.7 s."""

_modules = sys.modules
_collect = gc.collect


class Imported:
    """How many modules there were when Python looked through all objects for us."""

    def __init__(self, is_collecting: Callable[[], bool] = gc.isenabled) -> None:
        """is_collecting: whether the user's program has the collector on."""
        self._is_collecting = is_collecting
        self._known = len(_modules)

    def settle(self) -> bool:
        """If many modules have been imported since the last time. Not where a user has turned the collector off."""
        if len(_modules) - self._known < MANY_MODULES or not self._is_collecting():
            return False
        self._known = len(_modules)
        _collect()
        return True
