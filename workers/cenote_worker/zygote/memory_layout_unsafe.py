"""The layout of a zygote's memory, so that forks of it are cheap: the heap and libraries' data lie in a file in
memory.

A fork copies the page table entry of every page that a process or its forebears have written, 55 MB of them after
numpy and pandas, but none of a file's: those are found again when they are touched. A worker is forked after each
cell, so this halves what that takes. Memory cannot be moved under a running interpreter. So a long free stretch of
the C library's heap is mapped from the file, shared, before anything is allocated there, and Python's own allocator
draws on the same heap meanwhile. In the end the stretch is mapped again, privately: what it holds is in the file by
then.

The loader writes addresses into each library's data, two stretches for each of a hundred libraries, and a fork
takes as long for each stretch as for hundreds of pages. Afterwards hardly any is written again, so they become
pages of a file too.

Imports leave free places all over the heap, and Python gives those out first: the few thousand small objects of a
fork took a hundred pages more than they have bytes for. `fill_gaps` fills them, so that new objects lie side by
side.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_BLOCK: Final = 2**20
"""What Python's allocator asks for at once, and less than which the C library takes from its heap once it was given
back a block of that size.
"""

_BLOCKS: Final = 256
"""The stretch. What is not used of it is given back; imports that need more get memory as usual."""

_SIZE_BEFORE: Final = ctypes.sizeof(ctypes.c_size_t)
"""Where glibc notes a block's size: so many bytes before it."""

_NOTES: Final = 2 * _SIZE_BEFORE
"""What a block takes beside its bytes, if they are a multiple of as much."""

_PAGE: Final = mmap.PAGESIZE
_MAP_FIXED: Final = 0x10
SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.malloc.restype = _libc.sbrk.restype = _libc.mmap.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
_libc.sbrk.argtypes = [ctypes.c_long]
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip


class _ArenaAllocator(ctypes.Structure):
    """`PyObjectArenaAllocator` of the C API: `alloc(ctx, size)`, `free(ctx, arena, size)`."""

    _fields_ = (("ctx", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p))


def _address_of(function: object) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]


class CommonHeap:
    """From its making until `settle`, what this process allocates is in the file.

    Nothing may be forked in between that goes on in this memory: `os.fork` settles by itself. Where the C library's
    heap is not as expected, nothing happens at all.
    """

    def __init__(self) -> None:
        self._file = self._stopper = -1
        self._start = self._end = 0
        self._usual = _ArenaAllocator()
        blocks = _neighbours()
        if blocks:
            self._exchange(blocks)
            self._use_for_objects()
            os.register_at_fork(before=self.settle)

    def settle(self) -> None:
        """From here on whatever this process or a fork of it writes is its own."""
        if self._file < 0:
            return
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._usual))
        _libc.free(self._stopper)  # now the unused rest is the heap's top, and given back
        self._end = min(self._end, _up(_libc.sbrk(0)))
        map_file(self._start, self._end, mmap.PROT_READ | mmap.PROT_WRITE, self._file, 0, shared=False)
        with suppress(OSError):
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, SEALS)
        os.close(self._file)
        self._file = -1

    def _exchange(self, blocks: list[int]) -> None:
        """Puts the file where the blocks are and frees all but the last, so that the others are not given back.

        While they are allocated nobody looks at them: nothing is missed but their sizes, which are put back.
        """
        *inner, self._stopper = blocks
        self._start, self._end = _up(blocks[0]), _up(self._stopper) - _PAGE
        self._file = os.memfd_create("cenote-heap", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._file, self._end - self._start)
        sizes = [
            (at, ctypes.c_size_t.from_address(at).value)
            for at in (block - _SIZE_BEFORE for block in inner[1:])
        ]
        map_file(self._start, self._end, mmap.PROT_READ | mmap.PROT_WRITE, self._file, 0, shared=True)
        for at, size in sizes:
            ctypes.c_size_t.from_address(at).value = size
        for block in inner:
            _libc.free(block)

    def _use_for_objects(self) -> None:
        """`realloc(NULL, size)` allocates. What is freed meanwhile is not used again: it is little."""
        ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(self._usual))
        ours = _ArenaAllocator(None, _address_of(_libc.realloc), _address_of(_libc.getppid))
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))


def map_file(start: int, end: int, access: int, file: int, offset: int, *, shared: bool) -> None:
    """Puts pages of a file in the place of what is there. Raises OSError."""
    flags = _MAP_FIXED | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    if _libc.mmap(start, end - start, access, flags, file, offset) != start:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "mmap")


def _neighbours() -> list[int]:
    """Blocks of the C library's heap, side by side; none where they do not come like that."""
    bottom = _libc.sbrk(0)
    _libc.free(_libc.malloc(_BLOCK + _PAGE))  # one that was mapped raises the size from which on blocks are
    blocks = [0] * _BLOCKS  # at once: a list that grew would lie in between
    for number in range(_BLOCKS):
        blocks[number] = _libc.malloc(_BLOCK) or 0
    if is_one_stretch(bottom, blocks, _libc.sbrk(0)):
        return blocks
    for block in blocks:
        _libc.free(block)
    return []


def is_one_stretch(bottom: int | None, blocks: list[int], top: int | None) -> bool:
    """Whether nothing lies between the blocks, and they in the heap, which ended at `bottom` and does at `top`. Pure.

    A block is as far from the next as its size and the note of it say, and no more than it must be aligned.
    """
    if not bottom or not top or not all(blocks):
        return False
    steps = {later - earlier for earlier, later in pairwise(blocks)}
    return steps == {_BLOCK + _NOTES} and bottom - _BLOCK <= blocks[0] and blocks[-1] < top


def _up(address: int) -> int:
    """To the next page's beginning."""
    return (address + _PAGE - 1) & -_PAGE


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


_ALIGNMENT: Final = 16
_LARGEST: Final = 512
"""Bytes: what is larger comes from the C library."""

_POOL: Final = 16 * 1024
"""Bytes that Python cuts into places of one size."""

_MOST: Final = 100_000
"""Places of one size. A thousand are free behind numpy and pandas; with another allocator there might be no end."""

_allocate = ctypes.pythonapi.PyMem_Malloc
_allocate.restype = ctypes.c_void_p
_allocate.argtypes = [ctypes.c_size_t]


def fill_gaps() -> int:
    """Takes what is free among small objects, for ever. Gives how many bytes.

    And has Python forget which attributes of types it has looked up: it holds their names, and a fork that replaces
    one writes to the page of the old name, too.
    """
    ctypes.pythonapi.PyType_ClearCache()
    return sum(_fill(size) for size in range(_ALIGNMENT, _LARGEST + 1, _ALIGNMENT))


def _fill(size: int) -> int:
    """Until most of a pool has come in one row: that is a new one. This loop's own numbers may lie in between."""
    last, row, taken = 0, 0, 0
    while row < _POOL // size * 3 // 4 and taken < _MOST:
        address = _allocate(size) or 0
        row = row + 1 if 0 < address - last <= 3 * size else 0
        last, taken = address, taken + 1
    return taken * size
