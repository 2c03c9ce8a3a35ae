"""Shared values on disk: files without a name, which last as long as somebody has a descriptor of them.

So nothing is left behind by whatever process dies, and no path leads to a value. Whoever is given one maps it
privately, in constant time, and the kernel keeps in memory what of it is in use. Unlike sealed memory such a file
could be written by its owner: descriptors that leave here cannot write, and a jail of the same user that opens one
again through `/proc` meets Landlock, which knows no way to a file outside its folders.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_security.sealed import SealedMemory, copy_bytes
from cenote_worker.file_systems import kind_of

_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""File systems that are memory themselves."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_PART_OF_FREE: Final = 2
"""One value takes at most this part of what is free: the rest of the machine works on that disk too."""


class ValueDisk:
    """The disk that a folder is on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, memory: SealedMemory) -> SealedMemory:
        """A copy of a value, to be read only. Raises UnavailableError where the disk has no room for it."""
        self._check(memory.size)
        try:
            return self._written(memory)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise UnavailableError(f"{self._no_room(memory.size)}: {error.strerror}") from error

    def _written(self, memory: SealedMemory) -> SealedMemory:
        with TemporaryFile(dir=self._folder) as file:
            if memory.size:
                # Now, so that a full disk is told to whoever asks, and not when the kernel writes the pages.
                os.posix_fallocate(file.fileno(), 0, memory.size)
                copy_bytes(memory.fileno(), 0, memory.size, file.fileno())
            os.fchmod(file.fileno(), 0o400)
            reading = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
            return SealedMemory(reading, memory.size)

    def _check(self, size: int) -> None:
        if (kind := kind_of(self._folder.stat().st_dev)) in _MEMORY:
            raise UnavailableError(f"{self._no_room(size)}: it is on {kind}, which is memory too")
        status = os.statvfs(self._folder)
        free = status.f_bavail * status.f_frsize
        if size > free // _PART_OF_FREE:
            raise UnavailableError(
                f"{self._no_room(size)}: {free} bytes are free, and one value gets half of that"
            )

    def _no_room(self, size: int) -> str:
        return (
            f"the memory for shared values is full, and {self._folder} has no room for {size} bytes of them"
        )
