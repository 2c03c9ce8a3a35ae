"""Memory that the C library keeps free for later, which a copy of the process does without.

What a cell has computed with and given back lies in the heap, to be used again: ten megabytes for a frame of 50. A
fork shares it like everything else, so the next cell copies what is in it, garbage, page by page, before it writes
over that. So large free stretches are taken just before the fork, kept out of it (MADV_DONTFORK, see madvise(2)) and
given back behind it. A copy has nothing there, and gets new memory in their place if it is to go on.

The C library does not say what is free. It is asked for pieces of memory instead: those that lie where its heap was
before were free. `malloc_trim` would give the pages back to the kernel, so that the next cell waits for as many new
ones, and asks the kernel for each free stretch, of which a heap of small pieces has any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from mmap import PAGESIZE
from typing import Final

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

PIECE: Final = 2**20
"""Bytes of what is asked for, with what the C library has before it. Smaller free stretches stay in the copy."""

MOST: Final = 1024
"""Pieces: each takes half a microsecond, and a page of the copy's if it cannot be joined with others."""

GROWTH: Final = 2 * PIECE
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
        return Withheld(_taken(self._base, end) if end - self._base >= GROWTH else ())


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
    for _ in range(MOST):
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
