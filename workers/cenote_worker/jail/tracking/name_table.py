"""Which object each name of a namespace has, in a form in which two tables are compared by their bytes.

A cell changes a few names of maybe many thousands. Calling `id` for each takes longer than all other work around a
small cell, the more since Python reports each call to its audit hooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import addresses_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_WORD: Final = 8
_AT_ONCE: Final = 256 * _WORD
"""Bytes that are compared before any name is looked at."""


class NameTable:
    """The names of a namespace at one moment. It holds the names, so that no other object gets their addresses, but
    no values."""

    __slots__ = ("_names", "_values", "names")

    def __init__(self, namespace: Mapping[str, object]) -> None:
        items = list(namespace.values())
        self.names = list(namespace)
        self._names, self._values = addresses_of(self.names), addresses_of(items)

    def begins_with(self, other: NameTable) -> bool:
        """Whether it begins with all names of the other table, in the same order."""
        return self._names.startswith(other._names)

    def changed_since(self, before: NameTable) -> Iterator[str]:
        """Names that have another object, or are in only one of the two. Keys that are no strings are left out."""
        if self.begins_with(before):
            for start in range(0, len(before._values), _AT_ONCE):
                yield from self._changed_among(before, start)
            names = self.names[len(before.names) :]
        else:
            then, now = before._by_name(), self._by_name()
            names = [each for each in now.keys() | then.keys() if now.get(each) != then.get(each)]
        yield from (each for each in names if type(each) is str)

    def _changed_among(self, before: NameTable, start: int) -> Iterator[str]:
        end = min(start + _AT_ONCE, len(before._values))
        if self._values[start:end] == before._values[start:end]:
            return
        for place in range(start, end, _WORD):
            name = self.names[place // _WORD]
            is_other = self._values[place : place + _WORD] != before._values[place : place + _WORD]
            if is_other and type(name) is str:
                yield name

    def _by_name(self) -> dict[str, int]:
        values = memoryview(self._values).cast("Q").tolist()
        return {each: value for each, value in zip(self.names, values, strict=True) if type(each) is str}
