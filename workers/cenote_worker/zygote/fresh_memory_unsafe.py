"""Leaving no gaps in a zygote's memory, so that what its forks allocate comes to lie side by side.

Imports leave free places all over the heap, and Python gives those out first. A fork that fills them has a page of
its own for each: its few thousand small objects took a hundred pages more than they have bytes for.
"""

from __future__ import annotations

import ctypes
from typing import Final

_ALIGNMENT: Final = 16
_LARGEST: Final = 512
"""Bytes: what is larger comes from the C library."""

_POOL: Final = 16 * 1024
"""Bytes that Python cuts into places of one size."""

_MOST: Final = 100_000
"""Places of one size. A thousand are free behind numpy and pandas; with another allocator there might be no end."""

_allocate = ctypes.pythonapi.PyMem_Malloc
_allocate.restype = ctypes.c_void_p
_allocate.argtypes = [ctypes.c_size_t]


def fill_gaps() -> int:
    """Takes what is free among small objects, for ever. Gives how many bytes.

    And has Python forget which attributes of types it has looked up: it holds their names, and a fork that replaces
    one writes to the page of the old name, too.
    """
    ctypes.pythonapi.PyType_ClearCache()
    return sum(_fill(size) for size in range(_ALIGNMENT, _LARGEST + 1, _ALIGNMENT))


def _fill(size: int) -> int:
    """Until most of a pool has come in one row: that is a new one. This loop's own numbers may lie in between."""
    last, row, taken = 0, 0, 0
    while row < _POOL // size * 3 // 4 and taken < _MOST:
        address = _allocate(size) or 0
        row = row + 1 if 0 < address - last <= 3 * size else 0
        last, taken = address, taken + 1
    return taken * size
