"""How much of the memory that a copy was made of the worker has written to since, by samples of its pages.

The kernel's own sum (`smaps_rollup`) looks at each page: some milliseconds per gigabyte, in which a cell that sweeps
pays for a thousand pages more. Where the pages lie is asked of the copy: it is frozen, so what it has is what the
cell began with, and memory that the cell has asked for since is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cenote_worker.in_jail.forking.memory_map import private_memory

SAMPLES: Final = 1024
"""Pages looked at: a microsecond each, and enough to see three megabytes of a gigabyte."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LEAST: Final = 256
"""Pages of an area that is looked at."""

_LARGE: Final = 8192
"""Pages of an area that is taken for one thing, such as an array. All smaller ones are one: many small objects."""

_SIDE_BY_SIDE: Final = 3
"""Samples in a row, all copied, that are taken for pages that lie side by side."""

_FAR_APART: Final = 32
"""Samples that lie closer are read with all in between: asking for one takes the time of some sixty more."""

_ENTRY: Final = 8
_PRESENT: Final = 0x80
_EXCLUSIVE: Final = 0x01
"""Bits 63 and 56 of an entry of `/proc/<pid>/pagemap`: of its last byte, the kernel's numbers being little-endian."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Pages, estimated. copied: those of the copy's that the worker has a page of its own in the place of.

    exposed: those of the same large areas, or of all small ones, that it shares still, and would have to copy if it
    went on there. swept: of the copied, those that lie side by side in large areas most of which it shares still: a
    loop over an array writes so, and what changes objects here and there in a large heap does not.
    """

    copied: int = 0
    exposed: int = 0
    swept: int = 0

    def __add__(self, other: Sharing) -> Sharing:
        return Sharing(
            copied=self.copied + other.copied,
            exposed=self.exposed + other.exposed,
            swept=self.swept + other.swept,
        )


def sharing(worker: int, copy: int) -> Sharing:
    """Of two processes of which one is a frozen copy of the other; nothing of one that is gone."""
    return shared_of(areas(copy), worker)


def shared_of(memory: Sequence[range], worker: int) -> Sharing:
    """The same, given the areas of the copy; nothing of a worker that is gone."""
    stride = max(1, sum(map(len, memory)) // SAMPLES)
    with suppress(OSError, IndexError):
        pagemap = os.open(f"/proc/{worker}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _sampled(pagemap, memory, stride)
        finally:
            os.close(pagemap)
    return Sharing()


def areas(copy: int) -> Sequence[range]:
    """Numbers of pages of private writable memory that belongs to no file; none of a process that is gone.

    They stay what they are for as long as the copy is frozen.
    """
    with suppress(OSError, ValueError), open(f"/proc/{copy}/maps", "rb") as lines:
        try:
            memory = list(private_memory(lines.fileno()))
        except OSError:  # the kernel takes a millisecond to write all regions as text
            memory = list(_private_memory(lines))
        pages = (range(each.start // _PAGE, each.stop // _PAGE) for each in memory)
        return tuple(each for each in pages if len(each) >= _LEAST)
    return ()


def _private_memory(lines: Iterable[bytes]) -> Iterator[range]:
    for line in lines:
        addresses, rights, _offset, _device, inode, *_path = line.split(None, 5)
        if inode == b"0" and rights.startswith(b"rw-p"):
            first, last = (int(address, 16) for address in addresses.split(b"-"))
            yield range(first, last)


def _sampled(pagemap: int, memory: Sequence[range], stride: int) -> Sharing:
    """Every so many pages over all areas, as if they lay behind each other."""
    found = [Sharing()]  # the first for all that is small
    skipped = stride // 2
    for area in memory:
        pages = area[skipped::stride]
        skipped += len(pages) * stride - len(area)
        one = _looked_at(pagemap, pages)
        if len(area) < _LARGE:
            one, found[0] = Sharing(), found[0] + one
        found.append(one)
    copied = sum(one.copied for one in found)
    exposed = sum(one.exposed for one in found if one.copied)
    swept = sum(one.swept for one in found[1:] if one.copied < one.exposed)
    return Sharing(copied=copied * stride, exposed=exposed * stride, swept=swept * stride)


def _looked_at(pagemap: int, pages: range) -> Sharing:
    copied = exposed = row = longest = 0
    for bits in _flags(pagemap, pages):
        if bits & _PRESENT:
            copied += bits & _EXCLUSIVE
            exposed += not bits & _EXCLUSIVE
            row = row + 1 if bits & _EXCLUSIVE else 0
            longest = max(longest, row)
    return Sharing(copied=copied, exposed=exposed, swept=longest if longest >= _SIDE_BY_SIDE else 0)


def _flags(pagemap: int, pages: range) -> Sequence[int]:
    """The last byte of the entry of each."""
    if pages.step > _FAR_APART or not pages:
        return [os.pread(pagemap, _ENTRY, page * _ENTRY)[_ENTRY - 1] for page in pages]
    entries = os.pread(pagemap, _ENTRY * (pages[-1] - pages[0] + 1), _ENTRY * pages[0])
    return entries[_ENTRY - 1 :: _ENTRY * pages.step]
