"""Parts of a stored state that this process maps where they are stored."""

from __future__ import annotations

import mmap
import os

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.sealed import PrivatePages
from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.memory_unsafe import address_of

__builtins__ = BUILTINS


class LentParts:
    """Of one restore."""

    def __init__(self) -> None:
        self._parts: dict[int, memoryview] = {}

    def map(self, file: int, lent: checkpoint_pb2.LentFile) -> None:
        """Puts what a file has of each part into its place, and closes the descriptor. Raises OSError.

        Only for as long as there is no code of anybody else in this process: a descriptor tells more than its bytes.
        """
        try:
            for extent in lent.extents:
                start = address_of(self._part(extent.part, extent.size)) + extent.at
                libc.map_over(start, extent.length, file, extent.offset)
        finally:
            os.close(file)

    def take(self, number: int) -> memoryview:
        """A part, writable and private to the caller; it keeps its mapping alive. Each is taken once."""
        return self._parts.pop(number)

    def _part(self, number: int, size: int) -> memoryview:
        if number not in self._parts:
            access = mmap.PROT_READ | mmap.PROT_WRITE
            pages = PrivatePages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=access)
            self._parts[number] = memoryview(pages)
        return self._parts[number]
