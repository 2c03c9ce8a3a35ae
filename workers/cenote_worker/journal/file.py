"""An append-only file in memory: what is in it survives the process that wrote it, killed at whatever instruction.

Each entry is its length and its bytes, written by one call at the end of the file. The kernel raises the size only
over bytes that it has copied, so the size is the commit: an entry is there whole, or it reaches beyond the end.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final, Self

from cenote_proto.v1 import journal_pb2

_LENGTH: Final = struct.Struct("<I")


class JournalFile:
    """Owns its descriptor. One process writes: it has a lock on the file that ends with it and with nothing else."""

    def __init__(self, descriptor: int) -> None:
        """A file that another process has written; what it left unfinished is cut off.

        Raises OSError while that process lives, or another has taken the file over.
        """
        self.descriptor = descriptor
        # A lock of the process: one of the open file (flock) would be held by the keeper's copy too.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.size = _complete(self.read())
        os.ftruncate(descriptor, self.size)

    @classmethod
    def create(cls, entries: Iterable[journal_pb2.JournalEntry] = ()) -> Self:
        file = cls(os.memfd_create("cenote-journal", os.MFD_CLOEXEC))
        try:
            file._write(b"".join(map(_encoded, entries)))
        except BaseException:
            file.close()
            raise
        return file

    def append(self, entry: journal_pb2.JournalEntry) -> None:
        """Raises OSError when the machine has no memory for it; what was there is as it was."""
        self._write(_encoded(entry))

    def _write(self, data: bytes) -> None:
        written = os.pwrite(self.descriptor, data, self.size)
        if written != len(data):
            os.ftruncate(self.descriptor, self.size)
            raise OSError(f"{written} bytes of a journal's {len(data)} could be written")
        self.size += written

    def read(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def close(self) -> None:
        os.close(self.descriptor)


def _encoded(entry: journal_pb2.JournalEntry) -> bytes:
    data = entry.SerializeToString()
    return _LENGTH.pack(len(data)) + data


def entries_of(data: bytes) -> Iterator[journal_pb2.JournalEntry]:
    """The entries that are whole."""
    end = 0
    while (start := end + _LENGTH.size) <= len(data):
        end = start + _LENGTH.unpack_from(data, end)[0]
        if end > len(data):
            return
        yield journal_pb2.JournalEntry.FromString(data[start:end])


def _complete(data: bytes) -> int:
    """Bytes of all entries that are whole."""
    end = 0
    while end + _LENGTH.size <= len(data):
        following = end + _LENGTH.size + _LENGTH.unpack_from(data, end)[0]
        if following > len(data):
            break
        end = following
    return end
