"""Large parts of a state that a fresh jail maps where they are stored, instead of a copy of them in sealed memory.

Getting and filling 500 MB of new memory takes 0.25 CPU-s, looking through what the kernel has of the file anyway
0.08. A private mapping of the file is like one of sealed memory: what is written to it nobody else sees, and a file
that is deleted lasts as long as it is mapped. Unlike sealed memory a file could be written to by whoever may write to
the store: Cenote never does once it is published.

A jail gets such a file's descriptor only before there is any code in it but Cenote's, which maps and closes it: as
the same user it could change the file's permissions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from mmap import PAGESIZE
from typing import Final

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.checkpoints.folder import Readable
from cenote_worker.checkpoints.manifest import RAW, Location
from cenote_worker.checkpoints.state import Part
from cenote_worker.chunks import CHUNK, Digesting, digest, split_digests

LARGE: Final = 2**20
"""Bytes of a part that may be lent, and for each extent of it: a process has 65,530 mappings at most."""

_MOST_FILES: Final = 64
"""Each is a request to the jail, and a descriptor here."""

_AT_ONCE: Final = 4 * CHUNK
"""Bytes that are still in the processor's nearest cache when they are digested."""


class Damaged(Exception):
    """A chunk is not what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes of a part, from `at` on, that lie end to end in one file."""

    file: int
    at: int
    offset: int
    length: int


class Lender:
    """The files of one restore, open from the first part on that is lent of them until it is closed."""

    def __init__(self, folder: Readable, chunks: Mapping[bytes, Location]) -> None:
        self._folder = folder
        self._chunks = chunks
        self._files: dict[int, int] = {}
        self._lent: dict[int, checkpoint_pb2.LentFile] = {}
        self._count = 0
        self._buffer = memoryview(bytearray(_AT_ONCE))

    def lend(self, part: Part) -> tuple[int, bytes] | None:
        """The part's number among those that are lent, and its digest; None for one that cannot be.

        Raises Damaged, OSError.
        """
        extents = self._extents(part) if part.size >= LARGE else []
        if not extents or not all(self._open(extent.file) for extent in extents):
            return None
        whole = self._verified(part, extents)
        for extent in extents:
            lent = self._lent.setdefault(extent.file, checkpoint_pb2.LentFile())
            lent.extents.add(
                part=self._count, size=part.size, at=extent.at, offset=extent.offset, length=extent.length
            )
        self._count += 1
        return self._count - 1, whole

    def files(self) -> Iterator[tuple[int, checkpoint_pb2.LentFile]]:
        """Each descriptor, which stays this one's, with what is lent of its file."""
        for number, lent in self._lent.items():
            yield self._files[number], lent

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _extents(self, part: Part) -> list[Extent]:
        """None where there are too many for its size, or where one begins within a page."""
        found: list[Extent] = []
        at = 0
        for key, length in part.chunks():
            place = self._chunks[key]
            last = found[-1] if found else None
            if last is not None and (last.file, last.offset + last.length) == (place.file, place.offset):
                found[-1] = Extent(
                    file=last.file, at=last.at, offset=last.offset, length=last.length + length
                )
            else:
                found.append(Extent(file=place.file, at=at, offset=place.offset, length=length))
            if place.coding != RAW or len(found) * LARGE > part.size or found[-1].offset % PAGESIZE:
                return []
            at += length
        return found

    def _open(self, number: int) -> bool:
        if number in self._files:
            return True
        descriptor = self._folder.lend(number) if len(self._files) < _MOST_FILES else None
        if descriptor is None:
            return False
        self._files[number] = descriptor
        return True

    def _verified(self, part: Part, extents: list[Extent]) -> bytes:
        """The digest of the part, all of whose chunks are what was written."""
        digests = iter(split_digests(part.digests))
        whole = Digesting()
        for extent in extents:
            for start in range(0, extent.length, _AT_ONCE):
                data = self._buffer[: min(_AT_ONCE, extent.length - start)]
                if os.preadv(self._files[extent.file], [data], extent.offset + start) != data.nbytes:
                    raise Damaged(f"file {extent.file} is cut off")
                for at in range(0, data.nbytes, CHUNK):
                    if digest(data[at : at + CHUNK]) != next(digests):
                        raise Damaged(f"a chunk in file {extent.file} is not what was written")
                whole.update(data)
        return whole.digest()
