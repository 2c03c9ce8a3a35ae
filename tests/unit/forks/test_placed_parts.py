"""Places of parts in one memory."""

from __future__ import annotations

import mmap
import os
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from cenote_security.sealed_memory import FillableMemory
from cenote_worker.transport import content
from cenote_worker.transport.content import LARGE, Content, PartLayout

SIZES = st.lists(st.sampled_from([0, 1, 63, 64, 65, 4096, LARGE - 1, LARGE, LARGE + 1]), max_size=8)


@given(SIZES)
def test_no_two_parts_meet(sizes: list[int]) -> None:
    """Not even on a page, where one of them is large; the sizes determine the places."""
    places = PartLayout.of(sizes)
    taken = sorted((start, start + size) for start, size in zip(places.offsets, sizes, strict=True) if size)
    assert all(end <= start for (_, end), (start, _) in pairwise(taken))
    assert places.size == max(map(sum, zip(places.offsets, sizes, strict=True)), default=0)
    for start, size in zip(places.offsets, sizes, strict=True):
        assert start % (mmap.PAGESIZE if size >= LARGE else 64) == 0
        assert size >= LARGE or start + size <= places.small


@example([LARGE, 0])
@given(SIZES)
def test_parts_come_back(sizes: list[int]) -> None:
    """Written in place or end to end: the same bytes, and a write to one does not affect the others."""
    parts = [memoryview(os.urandom(size)) for size in sizes]
    room = FillableMemory(PartLayout.of(sizes).size)
    content.write_parts(room.fileno(), parts)
    with room.seal() as memory:
        whole = Content(size=memory.size, count=0, memory=memory)
        assert b"".join(content.joined_parts(parts)) == bytes(memory.map())
        for part in content.part_views(whole, sizes):
            part[:] = bytes(len(part))
        assert [bytes(part) for part in parts] == [bytes(part) for part in content.part_views(whole, sizes)]
