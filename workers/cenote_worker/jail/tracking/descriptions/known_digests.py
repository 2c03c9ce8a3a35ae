"""Memory whose digest is known, and that has not been written to since.

A restored array lies in a private mapping of sealed memory. The kernel tells of each of its pages whether it is the
file's still: the first write to one puts a page of this process in its place. As long as there is none, the digest is
that of what was verified, and the memory need not be read, which would map every page of it first.

An array that this process has made is known by its pages, too, once they are shared with a copy of the process: the
first write to one after the fork puts a page in its place that this process has alone. So memory that was hashed
while all of its pages were shared has that digest for as long as they are. A page that was written and then shared
by another fork looks the same. Therefore `before_fork` looks at all known memory before each fork and forgets what
was written; `os.fork` calls it by itself, and the forks of this package that do without Python's own call it. What is
hashed between a step and the copy of the state that it leaves is known from that copy on.

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
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from cenote_security.sealed_memory import PrivatePages
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

LARGE: Final = 2**20
"""Bytes from which on asking the kernel costs less than hashing: 6 ms for 500 MB, which take 20 once they are mapped
and 100 before."""

_ENTRY: Final = 8
"""Bytes that the kernel has of each page, little-endian on every machine that this runs on."""

_FILES_PAGE: Final = 1 << 61
_SWAPPED: Final = 62
_PRESENT: Final = 63

_LAST: Final = _ENTRY - 1
"""The byte of an entry that has its bits 56 to 63."""

_SHARED: Final = b"\x80"
"""That byte of a page that is there, is no file's, and is not this process's alone."""

_OF_A_FILE: Final = (b"\xa0", b"\xa1", b"\x20", b"\x00")
"""Of one that the file of a private mapping has: there, or not."""

_PAGEMAP: Final = "/proc/self/pagemap"

_open, _read_at, _close, _at_fork = os.open, os.pread, os.close, os.register_at_fork


_Place = tuple[int, int]
"""Of memory: its first address, and its bytes."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """owner: the array that the memory belongs to. edges: what it has of pages that others have parts of. is_mapped:
    of a private mapping of sealed memory."""

    owner: weakref.ref[Any]
    digest: str
    edges: tuple[bytes, bytes]
    is_mapped: bool


class KnownDigests:
    """What is known of this process's memory; its forks know it too."""

    def __init__(self) -> None:
        self._known: dict[_Place, tuple[weakref.ref[PrivatePages], str]] = {}
        self._hashed: dict[_Place, _Hashed] = {}
        """All of its pages were shared when it was hashed, or have been since the fork after that."""
        self._pending: dict[_Place, _Hashed] = {}
        """Hashed since the latest step, and not shared yet."""
        self.bytes_hashed = 0
        """Of large memory, in all."""
        _watch_forks(self)

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
        if size < LARGE or not hasattr(array, "__array_interface__"):
            return ""
        place = _address(array), size
        pages, digest = self._known.get(place, (None, ""))
        if pages is not None:
            if pages() is not None and _is_untouched(*place):
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
        """The memory of a contiguous array has been read, and has this digest. owner: the array that has it."""
        if size < LARGE:
            return
        self.bytes_hashed += size
        place, pages = (_address(array), size), pages_of(owner)
        if pages is None and owner.base is not None:
            return  # another owner of that memory may write to it
        if pages is not None and _is_untouched(*place):
            self._known[place] = weakref.ref(pages), digest
            return
        found = _Hashed(weakref.ref(owner), digest, _edges(array, place), pages is not None)
        (self._hashed if _is_shared(place, found) else self._pending)[place] = found

    @property
    def is_pending(self) -> bool:
        """Whether a copy of the process would spare it reading the same memory once more."""
        return bool(self._pending)

    def step(self) -> None:
        """Code of the user's is about to run, or has just run: what is not shared by now may be written unseen."""
        self._pending.clear()

    def forget(self) -> None:
        """Another thread may write at any time, between this process's looks and its forks."""
        self._pending.clear()
        self._hashed.clear()

    def before_fork(self) -> None:
        """All pages of this process will be shared. What is pending was hashed since code of the user's ran last."""
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
    """The private mapping that an array lies in."""
    base = owner.base
    base = base.obj if type(base) is memoryview else base
    return base if type(base) is PrivatePages else None


_watching: weakref.WeakSet[KnownDigests] = weakref.WeakSet()
_is_watching = False


def _watch_forks(untouched: KnownDigests) -> None:
    """Python's own. What it calls before one cannot be taken back, so there is one function for all."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        _at_fork(before=_before_each_fork)
    _watching.add(untouched)


def _before_each_fork() -> None:
    for each in list(_watching):
        each.before_fork()


def _edges(array: Any, place: _Place) -> tuple[bytes, bytes]:
    """Before its first whole page, and behind its last. array: any that has the memory, all of it or more."""
    start, size = place
    flat = array if array.flags.c_contiguous else array.T
    own = memoryview(flat.reshape(-1).view("V1").view("u1"))[start - _address(array) :][:size]
    first, last = -start % mmap.PAGESIZE, (start + size) % mmap.PAGESIZE
    return bytes(own[:first]), bytes(own[size - last :])


def _is_shared(place: _Place, hashed: _Hashed) -> bool:
    """Whether no whole page is this process's alone. See the head of this file."""
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


class SampledMemory(KnownDigests):
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
