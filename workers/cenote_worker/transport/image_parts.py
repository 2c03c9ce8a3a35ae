"""Where an image of a process is that lacks what an earlier one has: in its own file, and in that one, its base.

Chunks of images are compared by their digests. The writer of an image puts long runs of memory as far into a chunk as
they are in memory, so that what is unchanged has the same chunks, wherever it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.chunks import CHUNK, chunk_count

__builtins__ = BUILTINS

MOST: Final = 4096
"""Parts of an image. Each is a mapping of the process, of which it may have 65,530, and all fit into one packet."""


class ImageExtent(NamedTuple):
    """start: in the image. offset: in its own file or, `in_base`, in the base. Bytes."""

    start: int
    offset: int
    in_base: bool


@dataclass(frozen=True, slots=True)
class ImageParts:
    """chunks: in each part. places: twice the number of its first chunk in its file, and 1 more in the base. Empty
    for an image that is whole."""

    chunks: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @classmethod
    def from_message(cls, message: checkpoint_pb2.ImageParts) -> ImageParts:
        return cls(tuple(message.chunks), tuple(message.places))

    def to_message(self) -> checkpoint_pb2.ImageParts:
        return checkpoint_pb2.ImageParts(chunks=self.chunks, places=self.places)

    def fit(self, size: int) -> bool:
        """Whether an image of so many bytes can be in these parts."""
        whole = not self.chunks and not self.places
        fits = len(self.chunks) == len(self.places) <= MOST and 0 not in self.chunks
        return whole or (fits and sum(self.chunks) == chunk_count(size))

    def extents(self) -> list[ImageExtent]:
        """The parts in their order; one for a whole image."""
        found, start = list[ImageExtent](), 0
        for chunks, place in zip(self.chunks, self.places, strict=True):
            found.append(ImageExtent(start, place // 2 * CHUNK, bool(place % 2)))
            start += chunks * CHUNK
        return found or [ImageExtent(0, 0, False)]

    def own_bytes(self, size: int) -> int:
        """Bytes of the own file of an image of this size."""
        if not self.chunks:
            return size
        own = sum(count for count, place in zip(self.chunks, self.places, strict=True) if not place % 2)
        last = size - (chunk_count(size) - 1) * CHUNK
        return own * CHUNK - (0 if self.places[-1] % 2 else CHUNK - last)


WHOLE: Final = ImageParts()


def shared_parts(digests: Sequence[bytes], base: Mapping[bytes, int]) -> ImageParts:
    """Where an image is whose chunks have these digests. base: numbers of chunks of a whole one by their digests.

    WHOLE where less than half of it is in the base, or it would be in too many parts.
    """
    chunks, places, own, after = list[int](), list[int](), 0, -1
    for digest in digests:
        found = base.get(digest)
        place = 2 * own if found is None else 2 * found + 1
        own += found is None
        if place == after:
            chunks[-1] += 1
        else:
            chunks.append(1)
            places.append(place)
        after = place + 2
    if 2 * own > len(digests) or len(chunks) > MOST:
        return WHOLE
    return ImageParts(tuple(chunks), tuple(places))
