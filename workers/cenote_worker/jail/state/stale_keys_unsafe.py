"""Keys that changed after their insertion, so that they are stored under another hash.

A dictionary keeps the hash that a key had. A pickle inserts each key anew: a key that was not found before is found
then, and of two keys that have become equal only one remains. So dictionaries and sets with such keys are stored with
their hashes.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_PLAIN: Final = frozenset((int, str, bytes, bool, float, complex, type(None)))
_TABLES: Final = (dict, set, frozenset)

_following = ctypes.pythonapi._PySet_NextEntry
_following.argtypes = [
    ctypes.py_object,
    ctypes.POINTER(ctypes.c_ssize_t),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_ssize_t),
]
_following.restype = ctypes.c_int
_put = ctypes.pythonapi._PyDict_SetItem_KnownHash
_put.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t]
_put.restype = ctypes.c_int

Entries = list[tuple[Any, Any, int]]
"""Keys, values, and the hashes that they are stored under."""


class KeysNotKeptError(TypeError):
    """Changed keys that cannot be restored to their places."""

    def __init__(self) -> None:
        super().__init__("it has keys that have changed since they were put in")


def stale_tables(met: Iterable[object]) -> list[tuple[Any, Entries]]:
    """Of these objects, the dictionaries and sets that a pickle would change. Runs `__hash__` and `__eq__` of their
    keys. Raises KeysNotKeptError, and any error of these."""
    values = list(met)
    if not any(type(cls.__hash__) is FunctionType for cls in set(map(type, values))):
        return []
    tables = [
        value for value in values if isinstance(value, _TABLES) and not _PLAIN.issuperset(map(type, value))
    ]
    return [(table, entries) for table in tables if (entries := _stale(table)) is not None]


def fill(table: Any, entries: Entries) -> None:
    """Restores keys to their places."""
    into: dict[Any, Any] = {} if isinstance(table, set) else table
    dict.clear(into)
    for key, value, number in entries:
        _put(into, key, value, number)
    if isinstance(table, set):
        set.clear(table)
        set.update(table, into)  # by the hashes that they have there


def _stale(table: Any) -> Entries | None:
    """None if a pickle restores the same table."""
    lying: dict[Any, Any] = dict.copy(table) if isinstance(table, dict) else dict.fromkeys(set(table))
    if type(lying) is not dict:
        return None
    entries = list(_entries(lying))
    again: dict[Any, Any] = {}
    for key, _, _ in entries:
        again[key] = None
    if len(again) == len(entries):
        numbers = (number for _, _, number in _entries(again))
        if all(number == present for (_, _, number), present in zip(entries, numbers, strict=True)):
            return None
    made: dict[Any, Any] = {}
    for entry in entries:
        _put(made, *entry)
    if len(made) != len(entries) or isinstance(table, frozenset | OrderedDict):
        raise KeysNotKeptError
    return entries


def _entries(table: dict[Any, Any]) -> Iterator[tuple[Any, Any, int]]:
    """A set made from a dictionary uses the dictionary's hashes. It keeps one of two keys that have become equal and
    have the same hash, and two entries for a key that is stored under two hashes."""
    numbers: dict[int, list[int]] = {}
    place, key_at, number = ctypes.c_ssize_t(0), ctypes.c_void_p(), ctypes.c_ssize_t(0)
    keys = set(table)
    while _following(keys, ctypes.byref(place), ctypes.byref(key_at), ctypes.byref(number)):
        numbers.setdefault(key_at.value or 0, []).append(number.value)
    for key, held in list(table.items()):
        found = numbers.get(id(key), ())
        if len(found) != 1:
            raise KeysNotKeptError
        yield key, held, found[0]
