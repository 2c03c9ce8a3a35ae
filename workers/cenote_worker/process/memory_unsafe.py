"""Memory by its address: the bytes behind a library's pointer, the address of bytes, and the table of a set.

A set's table shows which slot each member has, where one was removed, and where the next `pop` begins. No public
interface gives that, and all of it determines the order in which a set yields later members. The layout is that of
CPython's `PySetObject`, the same from 3.11 to 3.13; if a set of known content does not have it in memory, nothing is
read.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


def memory_at(address: int, size: int, owner: object) -> memoryview:
    """A view, which keeps the owner of the memory alive."""
    if not size:
        return memoryview(b"")
    array = (ctypes.c_ubyte * size).from_address(address)
    array.owner = owner  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def address_of(memory: memoryview) -> int:
    """Where writable memory begins."""
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))


_string_at = ctypes.string_at
_WORD: Final = ctypes.sizeof(ctypes.c_ssize_t)
_HEAD: Final = object.__basicsize__
"""Bytes with which every object begins."""

_FIELDS: Final = 6
"""Filled slots, members, the size less one, the table's address, the hash of a frozenset, where `pop` begins."""

REMOVED: Final = -1
"""In place of the hash of a removed member."""


class Head(NamedTuple):
    """filled: slots that have, or had, a member. mask: the number of slots less one. finger: see the module."""

    filled: int
    used: int
    mask: int
    address: int
    finger: int


def head_of(value: Any) -> Head:
    """The head of a set or frozenset."""
    words = memoryview(_string_at(id(value) + _HEAD, _FIELDS * _WORD)).cast("q")
    filled, used, mask, address, _, finger = words
    return Head(filled, used, mask, address, finger)


def table_of(head: Head) -> memoryview[int]:
    """A copy of the table, two words a slot: the address of the member, and its hash."""
    return memoryview(_string_at(head.address, 2 * _WORD * (head.mask + 1))).cast("q")


def _is_as_expected() -> bool:
    known = {3, 5, 9}
    known.discard(3)
    try:
        head = head_of(known)
        if (head.filled, head.used, head.mask, head.finger) != (3, 2, 7, 0):
            return False
        hashes = table_of(head)[1::2].tolist()
    except (ValueError, TypeError):
        return False
    return hashes == [0, 9, 0, REMOVED, 0, 5, 0, 0]


IS_READABLE: Final = set.__basicsize__ == _HEAD + (_FIELDS + 2 * 8 + 1) * _WORD and _is_as_expected()
"""Whether tables can be read in this interpreter."""
