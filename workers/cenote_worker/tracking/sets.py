"""Sets as descriptions: what they hold, in the order that a loop over them sees, and where more will go.

Two sets that give the same in the same order may take another order when more is added, where members have other
slots, places of removed ones are left, or the table has another size; and `pop` goes on where it was.
"""

from __future__ import annotations

from typing import Any, Final

import xxhash

from cenote_worker.pristine import BUILTINS
from cenote_worker.set_tables_unsafe import IS_READABLE, REMOVED, Head, head_of, table_of
from cenote_worker.tracking.graph import Graph

__builtins__ = BUILTINS

_MANY: Final = 64
"""Slots from which on a table is told as a whole."""


def members(graph: Graph, value: Any, kind: Any) -> object:
    """Of a set or frozenset. kind: which of the two it is, or is derived from."""
    told = (kind.__sizeof__(value), graph.tokens(kind.__iter__(value)))
    layout = _layout(head_of(value)) if IS_READABLE else None
    return (*told, layout) if layout else told


def _layout(head: Head) -> object:
    """None of most small sets: their members have the slots of their hashes, which are others in another process."""
    if not head.filled:
        return head.finger
    words = table_of(head)
    hashes = words[1::2]
    if head.mask >= _MANY:
        # Of a member whose hash is zero this tells as much: it has the first place on its way that looks free.
        return (head.finger, xxhash.xxh3_128_hexdigest(hashes.tobytes()))
    mask = head.mask
    placed = enumerate(zip(words[::2].tolist(), hashes.tolist(), strict=True))
    told = [
        (slot, number)
        for slot, (member, number) in placed
        if member and (number & mask != slot or number == REMOVED)
    ]
    return (head.finger, told) if told or head.finger else None
