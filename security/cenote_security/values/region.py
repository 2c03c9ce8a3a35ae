"""The region of buffers beside a header: how it is laid out, and how it is read when a jail wrote it."""

from __future__ import annotations

from cenote_security.errors import UnsafeValueError
from cenote_security.sealed_memory import Buffer, aligned
from cenote_security.values import expect
from cenote_security.values.node import Json


class RegionWriter:
    """Collects buffers without copying them. Written end to end, `pieces` is the region."""

    def __init__(self, max_bytes: int) -> None:
        self.pieces: list[Buffer] = []
        self.size = 0
        self._max_bytes = max_bytes

    def add(self, buffer: Buffer, class_name: str, *, align: bool) -> list[Json]:
        """Where the buffer will be: [offset, length]. `class_name` is what an error names."""
        length = memoryview(buffer).nbytes
        start = aligned(self.size) if align else self.size
        if start + length > self._max_bytes:
            raise UnsafeValueError(class_name, f"more than {self._max_bytes} bytes of buffers")
        if start > self.size:
            self.pieces.append(bytes(start - self.size))
        if length:
            self.pieces.append(buffer)
        self.size = start + length
        return [start, length]


class RegionReader:
    """Hands out parts of a region, each byte once.

    Were two arrays allowed to share bytes, writing to one could make the other invalid after it was checked:
    Arrow offsets that point outside their buffer, for one.
    """

    def __init__(self, region: Buffer) -> None:
        view = memoryview(region).cast("B")
        # Rebuilt arrays are writable, whichever side sent them; only small values come as immutable bytes.
        self._view = memoryview(bytearray(view)) if view.readonly else view
        self._taken: list[tuple[int, int]] = []
        self._left = self.size = self._view.nbytes

    def take(self, where: Json) -> memoryview:
        start, length = expect.items(where, 2)
        start = expect.integer(start, 0, self.size)
        length = expect.integer(length, 0, self.size - start)
        # Before the precise check in `finish`: a million nodes that copy the same gigabyte must not get to it.
        self._left -= length
        if self._left < 0:
            expect.malformed("buffers overlap")
        if length:
            self._taken.append((start, start + length))
        return self._view[start : start + length]

    def finish(self) -> None:
        """Raises MalformedValueError when two parts overlap."""
        end = 0
        for start, stop in sorted(self._taken):
            if start < end:
                expect.malformed("buffers overlap")
            end = stop
