"""Memory whose digest somebody else has computed, and that nobody has written to since.

A restored array lies in a private mapping of sealed memory. The kernel tells of each of its pages whether it is the
file's still: the first write to one puts a page of this process in its place. As long as there is none, the digest is
that of what was verified, and the memory need not be read, which would map every page of it first.

See `pagemap` in the kernel's Documentation/admin-guide/mm/pagemap.rst. Where there is none, as in gVisor, nothing is
known and memory is hashed.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import xxhash

from cenote_security.sealed import PrivatePages
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

LARGE: Final = 2**20
"""Bytes from which on asking the kernel costs less than hashing: 6 ms for 500 MB, which take 20 once they are mapped
and 100 before."""

_ENTRY: Final = 8
"""Bytes that the kernel has of each page, little-endian on every machine that this runs on."""

_FILES_PAGE: Final = 1 << 61
_SWAPPED: Final = 62
_PRESENT: Final = 63

_PAGEMAP: Final = "/proc/self/pagemap"

_open, _read_at, _close = os.open, os.pread, os.close


class Untouched:
    """What is known of this process's memory; its forks know it too."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[weakref.ref[PrivatePages], str]] = {}

    def learn(self, parts: Iterable[tuple[memoryview, bytes]]) -> None:
        """Parts of private mappings, and what their digests were before anybody could write to them. Small parts, and
        other memory, are passed over."""
        self._known = {place: known for place, known in self._known.items() if known[0]() is not None}
        with suppress(Exception):  # a cell may have changed numpy
            numpy = sys.modules["numpy"]  # without it there are no arrays
            for part, digest in parts:
                if part.nbytes >= LARGE and type(part.obj) is PrivatePages:
                    place = _address(numpy.frombuffer(part, "u1")), part.nbytes
                    self._known[place] = weakref.ref(part.obj), digest.hex()

    def digest(self, array: Any, size: int) -> str:
        """Of the memory of a contiguous array; empty when it is not known, or not any more."""
        if not self._known or not hasattr(array, "__array_interface__"):
            return ""
        place = _address(array), size
        pages, digest = self._known.get(place, (None, ""))
        if pages is None:
            return ""
        if pages() is None or not _is_untouched(*place):
            del self._known[place]
            return ""
        return digest


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _is_untouched(start: int, size: int) -> bool:
    first, behind = start // mmap.PAGESIZE, -(-(start + size) // mmap.PAGESIZE)
    count = behind - first
    try:
        entries = _entries(first * _ENTRY, count * _ENTRY)
    except OSError:
        return False
    if len(entries) != count * _ENTRY:
        return False
    every = int.from_bytes(_FILES_PAGE.to_bytes(_ENTRY, "little") * count, "little")
    told = int.from_bytes(entries, "little")
    # A page that is there, or was until it was swapped out, and is not the file's.
    return not ((told >> (_PRESENT - 61)) | (told >> (_SWAPPED - 61))) & ~told & every


def _entries(offset: int, size: int) -> bytes:
    handle = _open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_at(handle, size, offset)
    finally:
        _close(handle)


_SAMPLES: Final = 16
SAMPLE: Final = 4 * mmap.PAGESIZE
"""Bytes of each."""


def samples_of(size: int) -> range:
    """Where they begin, in so many bytes."""
    return range(0, size - SAMPLE + 1, (size - SAMPLE) // (_SAMPLES - 1))


class SampledMemory(Untouched):
    """Tells large memory by its size and some of its pages, evenly spaced, the first and the last among them.

    A copy of a state has such memory byte by byte, as it was handed over or stored under its digest. What is to be
    found out is whether code that rebuilds a value has put something else there; reading all of it would map every
    page in each branch.
    """

    def digest(self, array: Any, size: int) -> str:
        if size < LARGE:
            return ""
        memory = memoryview(array).cast("B")
        sampled = xxhash.xxh3_128()
        for start in samples_of(size):
            sampled.update(memory[start : start + SAMPLE])
        return f"{size} {sampled.hexdigest()}"
