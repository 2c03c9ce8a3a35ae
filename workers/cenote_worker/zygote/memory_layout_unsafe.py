"""The layout of a zygote's memory, so that forks of it are cheap: the heap and libraries' data lie in a file in
memory.

A fork copies the page table entry of every page that a process or its ancestors have written, 55 MB of them after
numpy and pandas, but none of a file's: those are found again when they are touched. A worker is forked after each
cell, so this halves the cost of the fork. Memory cannot be moved under a running interpreter. So a long free stretch
of the C library's heap is mapped from the file, shared, before anything is allocated there, and Python's own
allocator uses the same heap meanwhile. In the end the stretch is mapped again, privately: its contents are in the
file by then.

The loader writes addresses into each library's data, two stretches for each of a hundred libraries, and a fork
takes as long for each stretch as for hundreds of pages. Hardly any is written again later, so they become pages of
the file, too. It has no holes: a store keeps a copy of it, see `checkpoints/image_files.py`.

Imports leave free slots all over the heap, and Python uses those first: the few thousand small objects of a fork
would dirty a hundred pages more than their bytes need. `fill_gaps` fills the slots, so that new objects are
contiguous.
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
"""The size that Python's allocator requests at once. After a block of this size was freed, the C library takes
smaller ones from its heap.
"""

_BLOCKS: Final = 256
"""Number of blocks in the stretch. Unused ones are freed; imports that need more get memory as usual."""

_SIZE_BEFORE: Final = ctypes.sizeof(ctypes.c_size_t)
"""glibc stores a block's size this many bytes before it."""

_NOTES: Final = 2 * _SIZE_BEFORE
"""Overhead of a block in bytes, if its size is a multiple of this."""

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


def common_file() -> int:
    """A descriptor of an empty file for this process's memory. `image.c` knows it by its name."""
    return os.memfd_create("cenote-common", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def seal_common_file(file: int) -> None:
    """Nothing can change it any more, unless a part is still mapped shared: then it stays as it is."""
    with suppress(OSError):
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)


class CommonHeap:
    """From its creation until `settle`, this process's allocations are in the file.

    A process forked in between must not use this memory: `os.fork` settles by itself. Where the C library's heap is
    not as expected, it does nothing.
    """

    def __init__(self, file: int) -> None:
        """file: an empty one."""
        self._file = file
        self._stopper = -1
        self._start = self._end = 0
        self._usual = _ArenaAllocator()
        blocks = _neighbours()
        if blocks:
            self._exchange(blocks)
            self._use_for_objects()
            os.register_at_fork(before=self.settle)

    def settle(self) -> None:
        """From here on everything that this process or a fork of it writes is private."""
        if self._stopper < 0:
            return
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._usual))
        _libc.free(self._stopper)  # now the unused rest is the heap's top, and is freed
        self._stopper = -1
        self._end = min(self._end, _up(_libc.sbrk(0)))
        map_file(self._start, self._end, mmap.PROT_READ | mmap.PROT_WRITE, self._file, 0, shared=False)
        os.ftruncate(self._file, self._end - self._start)

    def _exchange(self, blocks: list[int]) -> None:
        """Maps the file where the blocks are and frees all but the last, which keeps the heap from shrinking.

        Nothing uses the blocks while they are allocated: only their sizes are lost, and written again.
        """
        *inner, self._stopper = blocks
        self._start, self._end = _up(blocks[0]), _up(self._stopper) - _PAGE
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
        """Makes Python's allocator use this heap: `realloc(NULL, size)` allocates. It never frees: that is little."""
        ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(self._usual))
        ours = _ArenaAllocator(None, _address_of(_libc.realloc), _address_of(_libc.getppid))
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))


def map_file(start: int, end: int, access: int, file: int, offset: int, *, shared: bool) -> None:
    """Maps pages of a file over existing memory. Raises OSError."""
    flags = _MAP_FIXED | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    if _libc.mmap(start, end - start, access, flags, file, offset) != start:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "mmap")


def _neighbours() -> list[int]:
    """Contiguous blocks of the C library's heap; none where it does not give such."""
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
    """Whether the blocks are contiguous and in the heap, which ended at `bottom` and now ends at `top`. Pure.

    Each block is followed by the next at the distance that its stored size gives, and that alignment requires.
    """
    if not bottom or not top or not all(blocks):
        return False
    steps = {later - earlier for earlier, later in pairwise(blocks)}
    return steps == {_BLOCK + _NOTES} and bottom - _BLOCK <= blocks[0] and blocks[-1] < top


def _up(address: int) -> int:
    """Rounded up to the beginning of a page."""
    return (address + _PAGE - 1) & -_PAGE


_LIBRARY: Final = re.compile(
    rb"^([0-9a-f]++)-([0-9a-f]++) (\S{4}) \S+ \S+ \d+ +(/.*\.so[^/\n]*)\n", re.MULTILINE
)
_WRITTEN: Final = re.compile(rb"^Anonymous: +[1-9]", re.MULTILINE)
_LAST_LINE: Final = b"\nVmFlags:"
"""The last line of a region in `smaps`, as long as kernels add nothing after it."""

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
    """Libraries that are loaded between its creation and `settle`.

    Earlier ones stay as they are: the interpreter and the C library are in use while memory is exchanged.
    """

    def __init__(self, host_proc: int, file: int) -> None:
        """host_proc: a descriptor of `/proc`. file: what they are appended to."""
        self._proc = host_proc
        self._file = file
        self._found: list[_Region] = []
        self._before = {found[4] for found in _LIBRARY.finditer(_read(host_proc, "maps"))}

    def find(self) -> None:
        """Before the heap is settled: this takes memory for a while, which jails would have as their own later."""
        self._found = [region for region in _written(self._proc) if region.file not in self._before]

    def settle(self) -> None:
        """Call this when no other thread runs. What this process or a fork of it writes later is private."""
        for region in self._found:
            offset = _append(region, self._file)
            map_file(region.start, region.end, region.access, self._file, offset, shared=False)


def _append(region: _Region, file: int) -> int:
    """Appends a region's pages to the file. Gives their offset."""
    offset = os.lseek(file, 0, os.SEEK_END)
    data = memoryview((ctypes.c_char * (region.end - region.start)).from_address(region.start)).cast("B")
    while data:
        data = data[os.write(file, data) :]
    return offset


def _written(proc: int) -> Iterator[_Region]:
    """Regions of libraries' data that differ from their files."""
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
"""Bytes: larger objects come from the C library."""

_POOL: Final = 16 * 1024
"""Bytes that Python cuts into slots of one size."""

_MOST: Final = 100_000
"""Slots of one size. A thousand are free after numpy and pandas; with another allocator there might be no end."""

_allocate = ctypes.pythonapi.PyMem_Malloc
_allocate.restype = ctypes.c_void_p
_allocate.argtypes = [ctypes.c_size_t]


def fill_gaps() -> int:
    """Takes the free slots among small objects, for ever. Gives the number of bytes.

    Also clears Python's cache of looked-up type attributes: it refers to their names, and a fork that replaces an
    entry writes to the page of the old name, too.
    """
    ctypes.pythonapi.PyType_ClearCache()
    return sum(_fill(size) for size in range(_ALIGNMENT, _LARGEST + 1, _ALIGNMENT))


def _fill(size: int) -> int:
    """Allocates until most of a pool came contiguously: that one is new. This loop's own numbers may lie between."""
    last, row, taken = 0, 0, 0
    while row < _POOL // size * 3 // 4 and taken < _MOST:
        address = _allocate(size) or 0
        row = row + 1 if 0 < address - last <= 3 * size else 0
        last, taken = address, taken + 1
    return taken * size
