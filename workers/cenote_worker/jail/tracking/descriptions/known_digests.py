"""Memory whose digest is known, and that has not been written to since.

A restored array is in a private mapping of sealed memory. The kernel reports for each of its pages whether it is
still the file's: the first write to a page replaces it by a page of this process. As long as there is none, the
digest is the verified one, and the memory need not be read, which would map every page of it first.

An array that this process has made is recognized by its pages, too, once they are shared with a copy of the process:
the first write to a page after the fork replaces it by a private one. So memory that was hashed while all of its
pages were shared has that digest for as long as they are. A page that was written and then shared by another fork
looks the same. Therefore `before_fork` looks at all known memory before each fork and forgets what was written;
`os.fork` calls it, and so do the forks of this package that bypass Python's own. Memory that is hashed between a step
and the copy of its state is known from that copy on.

See `pagemap` in the kernel's Documentation/admin-guide/mm/pagemap.rst. Without it, as in gVisor, nothing is known and
memory is hashed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from cenote_security.sealed_memory import PrivatePages
from cenote_worker.process.memory_unsafe import address_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

LARGE: Final = 2**20
"""Bytes from which on asking the kernel costs less than hashing: 6 ms for 500 MB, which take 20 ms once they are
mapped and 100 before."""

_ENTRY: Final = 8
"""Bytes of a page's entry, little-endian on every machine that this runs on."""

_FILES_PAGE: Final = 1 << 61
_SWAPPED: Final = 62
_PRESENT: Final = 63

_LAST: Final = _ENTRY - 1
"""The byte of an entry that has its bits 56 to 63."""

_SHARED: Final = b"\x80"
"""That byte for a page that is present, belongs to no file, and is not exclusive to this process."""

_OF_A_FILE: Final = (b"\xa0", b"\xa1", b"\x20", b"\x00")
"""That byte for a page of a private mapping's file: present, or not."""

_PAGEMAP: Final = "/proc/self/pagemap"

_PAGEMAP_SCAN: Final = 0xC0606610
_SCAN: Final = struct.Struct("=12Q")
"""`struct pm_scan_arg` of <linux/fs.h>: size, flags, start, end, end of the walk, place and number of the regions
to be found, most pages, inverted categories, those that a page needs all of, and any of, and those in the answer."""

_REGION: Final = struct.Struct("=3Q")
_PAGE_IS_FILE, _PAGE_IS_PRESENT, _PAGE_IS_SWAPPED = 1 << 2, 1 << 3, 1 << 4

_open, _read_at, _close, _at_fork = os.open, os.pread, os.close, os.register_at_fork
_ioctl = fcntl.ioctl


_Place = tuple[int, int]
"""A memory range: its first address, and its size in bytes."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """owner: the array that the memory belongs to. edges: its bytes on pages that are shared with other data.
    is_mapped: whether it is in a private mapping of sealed memory."""

    owner: weakref.ref[Any]
    digest: str
    edges: tuple[bytes, bytes]
    is_mapped: bool


class KnownDigests:
    """What is known of this process's memory; its forks inherit it."""

    def __init__(self) -> None:
        self._known: dict[_Place, tuple[weakref.ref[PrivatePages], str]] = {}
        self._hashed: dict[_Place, _Hashed] = {}
        """All of its pages were shared when it was hashed, or have been since the fork after that."""
        self._pending: dict[_Place, _Hashed] = {}
        """Hashed since the latest step, and not shared yet."""
        self.bytes_hashed = 0
        """Total bytes of large memory."""
        _watch_forks(self)

    def learn(self, parts: Iterable[tuple[memoryview, bytes]]) -> None:
        """Parts of private mappings, and their digests before any write. Small parts, and other memory, are
        skipped."""
        self._known = {place: known for place, known in self._known.items() if known[0]() is not None}
        with suppress(Exception):  # a cell may have changed numpy
            numpy = sys.modules["numpy"]  # without it there are no arrays
            for part, digest in parts:
                if part.nbytes >= LARGE and type(part.obj) is PrivatePages:
                    place = _address(numpy.frombuffer(part, "u1")), part.nbytes
                    self._known[place] = weakref.ref(part.obj), digest.hex()

    def digest(self, array: Any, size: int) -> str:
        """The digest of a contiguous array's memory; empty when it is unknown."""
        if size < LARGE or not hasattr(array, "__array_interface__"):
            return ""
        place = _address(array), size
        pages, digest = self._known.get(place, (None, ""))
        if pages is not None:
            if pages() is not None and is_untouched(*place):
                return digest
            del self._known[place]
        hashed = self._hashed.get(place)
        if hashed is None:
            return ""
        owner = hashed.owner()
        if owner is not None and _edges(owner, place) == hashed.edges and _is_shared(place, hashed):
            return hashed.digest
        del self._hashed[place]
        return ""

    def hashed(self, array: Any, size: int, owner: Any, digest: str) -> None:
        """Records the digest of a contiguous array's memory, which has been read. owner: the array that has it."""
        if size < LARGE:
            return
        self.bytes_hashed += size
        place, pages = (_address(array), size), pages_of(owner)
        if pages is None and owner.base is not None:
            return  # another owner of that memory may write to it
        if pages is not None and is_untouched(*place):
            self._known[place] = weakref.ref(pages), digest
            return
        found = _Hashed(weakref.ref(owner), digest, _edges(array, place), pages is not None)
        (self._hashed if _is_shared(place, found) else self._pending)[place] = found

    @property
    def is_pending(self) -> bool:
        """Whether a copy of the process would avoid reading the same memory once more."""
        return bool(self._pending)

    def step(self) -> None:
        """Called before and after user code runs: memory that is not shared by now may be written unnoticed."""
        self._pending.clear()

    def forget(self) -> None:
        """Called when another thread may write at any time, between this process's looks and its forks."""
        self._pending.clear()
        self._hashed.clear()

    def before_fork(self) -> None:
        """All pages of this process will be shared. Pending memory was hashed since user code ran last."""
        if self._hashed or self._pending:
            left = {
                place: known
                for place, known in self._hashed.items()
                if (owner := known.owner()) is not None
                and _edges(owner, place) == known.edges
                and _is_shared(place, known)
            }
            self._hashed, self._pending = left | self._pending, {}


def pages_of(owner: Any) -> PrivatePages | None:
    """The private mapping that an array is in."""
    base = owner.base
    base = base.obj if type(base) is memoryview else base
    return base if type(base) is PrivatePages else None


_watching: weakref.WeakSet[KnownDigests] = weakref.WeakSet()
_is_watching = False


def _watch_forks(untouched: KnownDigests) -> None:
    """Registers a handler with Python's fork. It cannot be removed, so one function serves all."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        _at_fork(before=_before_each_fork)
    _watching.add(untouched)


def _before_each_fork() -> None:
    for each in list(_watching):
        each.before_fork()


def _edges(array: Any, place: _Place) -> tuple[bytes, bytes]:
    """The bytes before its first whole page, and after its last. array: any that has the memory, all of it or
    more."""
    start, size = place
    flat = array if array.flags.c_contiguous else array.T
    own = memoryview(flat.reshape(-1).view("V1").view("u1"))[start - _address(array) :][:size]
    first, last = -start % mmap.PAGESIZE, (start + size) % mmap.PAGESIZE
    return bytes(own[:first]), bytes(own[size - last :])


def _is_shared(place: _Place, hashed: _Hashed) -> bool:
    """Whether no whole page is exclusive to this process. See the head of this file."""
    start, size = place
    first, behind = -(-start // mmap.PAGESIZE), (start + size) // mmap.PAGESIZE
    try:
        told = _entries(first * _ENTRY, (behind - first) * _ENTRY)[_LAST::_ENTRY]
    except OSError:
        return False
    known = told.count(_SHARED)
    if hashed.is_mapped:
        known += sum(map(told.count, _OF_A_FILE))
    return known == behind - first


def address_of_buffer(buffer: memoryview) -> int:
    """Of contiguous memory, which may be read-only. Raises KeyError without the library of arrays."""
    return _address(sys.modules["numpy"].frombuffer(buffer, "u1"))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def is_untouched(start: int, size: int) -> bool:
    """Whether each page of a private mapping's range is still the file's."""
    first, behind = start // mmap.PAGESIZE, -(-(start + size) // mmap.PAGESIZE)
    count = behind - first
    with suppress(OSError):
        return not _has_own_page(first * mmap.PAGESIZE, behind * mmap.PAGESIZE)
    try:
        entries = _entries(first * _ENTRY, count * _ENTRY)
    except OSError:
        return False
    if len(entries) != count * _ENTRY:
        return False
    every = int.from_bytes(_FILES_PAGE.to_bytes(_ENTRY, "little") * count, "little")
    told = int.from_bytes(entries, "little")
    # A page that is present, or was before it was swapped out, and is not the file's.
    return not ((told >> (_PRESENT - 61)) | (told >> (_SWAPPED - 61))) & ~told & every


def _has_own_page(start: int, end: int) -> bool:
    """Whether a page in that range is present, or swapped out, and is not a file's. Raises OSError if the kernel has
    no such query (before Linux 6.7), or it is gVisor's."""
    found = bytearray(_REGION.size)
    place = address_of(memoryview(found))
    not_a_files, there = _PAGE_IS_FILE, _PAGE_IS_PRESENT | _PAGE_IS_SWAPPED
    query = bytearray(
        _SCAN.pack(
            _SCAN.size, 0, start, end, 0, place, 1, 1, not_a_files, not_a_files, there, _PAGE_IS_PRESENT
        )
    )
    handle = _open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(_ioctl(handle, _PAGEMAP_SCAN, query))
    finally:
        _close(handle)


def _entries(offset: int, size: int) -> bytes:
    handle = _open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_at(handle, size, offset)
    finally:
        _close(handle)


_SAMPLES: Final = 16
SAMPLE: Final = 4 * mmap.PAGESIZE
"""Bytes of each sample."""


def samples_of(size: int) -> range:
    """Offsets of the samples, in that many bytes."""
    return range(0, size - SAMPLE + 1, (size - SAMPLE) // (_SAMPLES - 1))


class SampledMemory(KnownDigests):
    """Describes large memory by its size and some of its pages, evenly spaced, the first and the last among them.

    A copy of a state has such memory byte by byte, as it was handed over or stored under its digest. The question is
    only whether code that rebuilds a value has put something else there; reading all of it would map every page in
    each branch.
    """

    def digest(self, array: Any, size: int) -> str:
        if size < LARGE:
            return ""
        memory = memoryview(array).cast("B")
        sampled = xxhash.xxh3_128()
        for start in samples_of(size):
            sampled.update(memory[start : start + SAMPLE])
        return f"{size} {sampled.hexdigest()}"
