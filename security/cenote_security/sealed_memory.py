"""Memory that crosses the wall: written once, sealed by the kernel, mapped privately by the receiver.

A value's bytes travel as a memfd with the seals SHRINK, GROW and WRITE. The receiver checks the seals before
it looks at the size: a sender who could still shrink the file would turn every later read into SIGBUS.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Self

from cenote_security.errors import MalformedValueError

Buffer = bytes | bytearray | memoryview
"""Contiguous bytes. (`collections.abc.Buffer` is younger than the oldest Python that runs this.)"""

ALIGNMENT = 64
"""Buffers start on multiples of a cache line: what numpy and Arrow prefer, and what SIMD loads may assume."""

MFD_NOEXEC_SEAL = 0x8
"""Linux 6.3: what the memory file holds can never be executed. Python 3.11 has no name for it."""

_MEMORY_FILE = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
CONTENT_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
"""Those of memory whose bytes nothing can change any more."""

_PIECES_PER_WRITE = 1024  # IOV_MAX of Linux
_BLOCK = 512  # of st_blocks, whatever the file system
_HUGE_PAGE = 2 * 2**20  # the last of a file's may reach beyond its end


def aligned(offset: int) -> int:
    """The first multiple of ALIGNMENT at or after `offset`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class PrivatePages(mmap.mmap):
    """A mapping whose changes no other process sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLayout:
    """Where each of several buffers lies in one region: (offset, length) in bytes, offsets aligned."""

    table: tuple[tuple[int, int], ...]
    size: int

    @classmethod
    def of(cls, lengths: Iterable[int]) -> BufferLayout:
        table: list[tuple[int, int]] = []
        end = 0
        for length in lengths:
            start = aligned(end)
            table.append((start, length))
            end = start + length
        return cls(table=tuple(table), size=end)

    def pieces(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The buffers with the padding between them: written one after the other they follow the table."""
        pieces: list[Buffer] = []
        end = 0
        for (start, length), buffer in zip(self.table, buffers, strict=True):
            if start > end:
                pieces.append(bytes(start - end))
            pieces.append(buffer)
            end = start + length
        return pieces


class SealedMemory:
    """A sealed memfd and its descriptor. `close()`, or the end of a `with` block, leaves its maps alive."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size = size

    @classmethod
    def create(cls, pieces: Iterable[Buffer]) -> Self:
        """One copy of the pieces, end to end, in fresh memory that cannot be changed any more.

        Raises OSError when the machine has no memory for it.
        """
        views = [memoryview(piece).cast("B") for piece in pieces]
        return cls._filled(sum(view.nbytes for view in views), lambda fd: _write_all(fd, views))

    @classmethod
    def copy_of(cls, source: int, offset: int, size: int) -> Self:
        """A part of an open file, copied by the kernel: this process's memory does not grow.

        Raises OSError when the machine has no memory for it, and when the file ends before the part does.
        """
        return cls._filled(size, lambda fd: copy_bytes(source, offset, size, fd))

    @classmethod
    def _filled(cls, size: int, fill: Callable[[int], None]) -> Self:
        fd = _fresh(size)
        try:
            fill(fd)
            _seal(fd)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, size)

    @classmethod
    def receive(cls, fd: int, max_size: int) -> SealedMemory:
        """Take over a descriptor from a jail, whatever it is. It is closed when it is refused.

        Raises MalformedValueError unless it is ordinary memory, at most `max_size` bytes, content sealed.
        """
        try:
            size = _checked_size(fd, max_size)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, size)

    def map(self) -> memoryview:
        """All bytes, writable; what is written stays private to this mapping (copy-on-write).

        The view keeps the mapping alive; the descriptor may be closed.
        """
        if not self.size:
            return memoryview(bytearray())
        return memoryview(
            PrivatePages(
                self.fileno(), self.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
        )

    def fileno(self) -> int:
        """The descriptor, still owned by this object. Raises ValueError after `close()`."""
        if self._fd < 0:
            raise ValueError("this sealed memory is closed")
        return self._fd

    def duplicate(self) -> SealedMemory:
        """A second owner of the same memory, with a descriptor of its own."""
        return SealedMemory(os.dup(self.fileno()), self.size)

    def close(self) -> None:
        """Close the descriptor. Closing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SealedDraft:
    """Memory that is filled from its beginning to its end, then sealed.

    It grows as it is filled: a size announced by the sender is not trusted. Raises OSError when memory is short.
    """

    def __init__(self) -> None:
        self._fd = _fresh(0)
        self.filled = 0

    def write(self, data: Buffer) -> None:
        """Appends all of it."""
        view = memoryview(data).cast("B")
        _write_all(self._fd, [view])
        self.filled += view.nbytes

    def seal(self) -> SealedMemory:
        """The memory, for ever as it is now; its new owner closes it."""
        fd, self._fd = self._fd, -1
        try:
            _seal(fd)
        except BaseException:
            os.close(fd)
            raise
        return SealedMemory(fd, self.filled)

    def close(self) -> None:
        """Gives the memory back, unless it was sealed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class FillableMemory:
    """Memory of a fixed size that an untrusted process fills. It counts as memory of this process."""

    def __init__(self, size: int) -> None:
        """Raises OSError where there is not enough."""
        self.size = size
        self._fd = _fresh(size)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)

    def fileno(self) -> int:
        """What may be handed out, still owned by this object."""
        return self._fd

    def seal(self) -> SealedMemory:
        """The memory as it is now, which cannot be changed any more; its new owner closes it.

        Raises MalformedValueError, and frees the memory, when the process that filled it could go on writing to it.
        """
        fd, self._fd = self._fd, -1
        # It is mapped to be written to, or has been sealed in another way: seen right below.
        with suppress(OSError):
            _seal(fd)
        return SealedMemory.receive(fd, self.size)

    def close(self) -> None:
        """Gives the memory back, unless it was sealed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _fresh(size: int) -> int:
    fd = _memory_file()
    try:
        if size:
            os.posix_fallocate(fd, 0, size)  # writing into pages that are there is three times faster
    except BaseException:
        os.close(fd)
        raise
    return fd


def _memory_file() -> int:
    """An empty memory file that can be sealed, and where the kernel knows how, never executed. Raises OSError."""
    try:
        return os.memfd_create("cenote", _MEMORY_FILE | MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("cenote", _MEMORY_FILE)


def _seal(fd: int) -> None:
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, CONTENT_SEALS | fcntl.F_SEAL_SEAL)


def copy_bytes(source: int, offset: int, size: int, target: int) -> None:
    """Copies within the kernel, to where `target` stands. Raises OSError when the source ends too early."""
    while size:
        copied = os.sendfile(target, source, offset, size)
        if not copied:
            raise OSError(errno.EIO, "it became shorter while it was read")
        offset, size = offset + copied, size - copied


def _write_all(fd: int, views: list[memoryview]) -> None:
    waiting = iter(view for view in views if view.nbytes)
    while batch := list(islice(waiting, _PIECES_PER_WRITE)):
        while batch:
            batch = _after(batch, os.writev(fd, batch))


def _after(views: list[memoryview], written: int) -> list[memoryview]:
    """What is left to write: the kernel stops early at 2 GiB, or at a signal."""
    for index, view in enumerate(views):
        if written < view.nbytes:
            return [view[written:], *views[index + 1 :]]
        written -= view.nbytes
    return []


def _checked_size(fd: int, max_size: int) -> int:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise MalformedValueError("the descriptor is not memory that can be sealed") from None
    if seals & CONTENT_SEALS != CONTENT_SEALS:
        raise MalformedValueError("the memory is not sealed; its sender could still change or shrink it")
    # Huge-page memory takes seals too, but a write to a private mapping of it can die of SIGBUS.
    if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE:
        raise MalformedValueError("the memory is not made of ordinary pages")
    found = os.fstat(fd)
    size = found.st_size
    if size > max_size:
        raise MalformedValueError(f"the memory holds {size} bytes; at most {max_size} are accepted")
    # The kernel makes a page of a hole when a mapping of it is read. The reader is charged for it, for as long as the
    # sender keeps the file. The seals keep pages from being given back.
    if _without_excess(fd, found) < size:
        raise MalformedValueError("the memory has holes, which its readers would have to fill")
    _check_mappable(fd, size)
    return size


def _without_excess(fd: int, found: os.stat_result) -> int:
    """Bytes of the pages that the memory has, none of them beyond its end.

    `fallocate` can put pages there that no size shows, before the memory is sealed, and they would stay for as long
    as any process has it.
    """
    if found.st_blocks * _BLOCK <= -(-found.st_size // mmap.PAGESIZE) * mmap.PAGESIZE:
        return found.st_blocks * _BLOCK
    try:
        os.ftruncate(fd, found.st_size)  # to the size that it has, which no seal forbids
    except OSError:
        raise MalformedValueError("the memory has pages beyond its end, and cannot be written to") from None
    kept = os.fstat(fd).st_blocks * _BLOCK
    if kept >= found.st_size + _HUGE_PAGE:
        raise MalformedValueError("the memory keeps pages beyond its end")
    return kept


def _check_mappable(fd: int, size: int) -> None:
    if not size:
        return
    try:
        mmap.mmap(fd, 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except OSError:
        raise MalformedValueError("the memory cannot be read through its descriptor") from None
