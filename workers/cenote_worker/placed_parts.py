"""Where the parts of a whole state lie in one memory: the same for who writes them, checks them and maps them.

Large parts have pages of their own and are mapped one by one, so that what is written to one of them is given back
when it goes, whatever becomes of the others. Small ones share a mapping: each costs the kernel an entry of a table
that has 65,530.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Self

from cenote_security.sealed import ALIGNMENT, Buffer, PrivatePages
from cenote_worker.content import Content

LARGE: Final = 256 * 1024
"""Bytes from which on a part is mapped by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """offsets: of the parts, in their order. small: where the small ones end. size: where all do."""

    offsets: tuple[int, ...]
    small: int
    size: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Self:
        """Small parts in their order, each on a cache line of its own; then the large ones, each on a page."""
        offsets = [0] * len(sizes)
        end = 0
        for index in (index for index, size in enumerate(sizes) if size < LARGE):
            offsets[index] = _up(end, ALIGNMENT)
            end = offsets[index] + sizes[index]
        small = end
        for index in (index for index, size in enumerate(sizes) if size >= LARGE):
            offsets[index] = _up(end, mmap.PAGESIZE)
            end = offsets[index] + sizes[index]
        return cls(offsets=tuple(offsets), small=small, size=end)


def write(target: int, parts: Sequence[memoryview]) -> None:
    """Puts the parts into memory that is large enough. Raises OSError."""
    for part, offset in zip(parts, Places.of([part.nbytes for part in parts]).offsets, strict=True):
        while part:
            written = os.pwrite(target, part, offset)
            part, offset = part[written:], offset + written


def joined(parts: Sequence[memoryview]) -> Iterator[Buffer]:
    """All bytes of that memory, end to end."""
    end = 0
    sizes = [part.nbytes for part in parts]
    # An empty part may have the offset of another.
    for offset, _, part in sorted(
        zip(Places.of(sizes).offsets, sizes, parts, strict=True), key=itemgetter(0, 1)
    ):
        yield bytes(offset - end)
        yield part
        end = offset + part.nbytes


def views(content: Content, sizes: Sequence[int]) -> list[memoryview]:
    """The parts, writable and private to the caller; they keep their mappings alive. Raises OSError, ValueError.

    ValueError: the content is too short for them.
    """
    places = Places.of(sizes)
    if places.size > content.size:
        raise ValueError("the parts of a state reach beyond its memory")
    small = _small(content, places)
    return [
        small[offset : offset + size] if size < LARGE else _mapped(content, offset, size)
        for offset, size in zip(places.offsets, sizes, strict=True)
    ]


def _small(content: Content, places: Places) -> memoryview:
    if content.memory is None:
        return memoryview(bytearray(content.inline or b""))
    return _mapped(content, 0, places.small) if places.small else memoryview(bytearray())


def _mapped(content: Content, offset: int, size: int) -> memoryview:
    assert content.memory is not None, "what is inline is small"
    access = mmap.PROT_READ | mmap.PROT_WRITE
    fd = content.memory.fileno()
    return memoryview(PrivatePages(fd, size, flags=mmap.MAP_PRIVATE, prot=access, offset=offset))


def _up(offset: int, step: int) -> int:
    return -(-offset // step) * step
