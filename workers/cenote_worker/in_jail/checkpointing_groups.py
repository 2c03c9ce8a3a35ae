"""Which variables have to be stored together, and their pickles.

Each variable is pickled by itself first. An object that two pickles have both met, unless any equal one would do
as well, joins their variables into one group, which is pickled once more as a whole. Joining too much costs
nothing but a longer stream: chunks are shared across groups.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from cenote_worker.in_jail.bounded import bounded_str
from cenote_worker.in_jail.checkpointing_unsafe import Anchors, NotKept, pickled
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_ATOMS = frozenset((int, float, complex, bool, type(None), str, bytes))
"""Equal ones cannot be told apart, but by `is`, which nobody may rely on."""

_EQUAL = frozenset((tuple, frozenset, range, slice, CodeType, ModuleType, BuiltinFunctionType))
"""Cannot be told apart either; what can be, in a tuple, is met by itself."""

NOT_STATE = frozenset(("__builtins__", "__name__", "__warningregistry__"))
"""Names that every namespace has, or gets from the interpreter."""

_SMALL = 4 * 1024
"""Bytes or characters of an atom that is stored with all the other small ones, in one group."""

_REASON_CHARS = 300

_Memo = dict[int, tuple[int, object]]
"""Of a pickler: what it met, by identity."""


@dataclass(frozen=True, slots=True)
class PickledGroup:
    """names: in the order of the namespace. parts: the stream, then the buffers."""

    names: tuple[str, ...]
    parts: tuple[memoryview, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    """refused: names of values that cannot be stored, with the reason."""

    groups: tuple[PickledGroup, ...]
    refused: Mapping[str, str]


def grouped(names: Iterable[str], namespace: Mapping[str, object], anchors: Anchors) -> Grouped:
    """Pickles of the named values. Never raises for what they do."""
    return _Grouping(namespace, anchors).of(names)


class _Grouping:
    """One pass over a namespace. Memos are kept to its end: they keep what they name alive, so that ids stay true."""

    def __init__(self, namespace: Mapping[str, object], anchors: Anchors) -> None:
        self._namespace = namespace
        self._anchors = anchors
        self._owners: dict[int, str] = {}
        self._leaders: dict[str, str] = {}
        self._memos: list[object] = []
        self._pickles: dict[str, PickledGroup] = {}
        self._refused: dict[str, str] = {}

    def of(self, names: Iterable[str]) -> Grouped:
        atoms: list[str] = []
        for name in names:
            value = self._namespace[name]
            if _is_small_atom(value):
                atoms.append(name)
            else:
                self._add(name, value)
        # Code that runs while values are rebuilt, as `__setstate__`, finds functions and classes by their names.
        code = {name for name, value in self._namespace.items() if isinstance(value, type | FunctionType)}
        ordered = sorted(self._members().values(), key=lambda members: not code.issuperset(members))
        groups = [self._joined(members) for members in ordered]
        if atoms:
            groups.insert(0, self._pickled(tuple(atoms))[0])
        return Grouped(tuple(groups), self._refused)

    def _add(self, name: str, value: object) -> None:
        try:
            if value is self._namespace:
                raise NotKept("it is the namespace itself")
            group, memo = self._pickled((name,))
            if id(self._namespace) in memo:
                raise NotKept("it holds the namespace itself, as globals() gives it")
        except (Exception, KeyboardInterrupt) as error:
            self._refused[name] = _reason(error)
            return
        self._leaders[name] = name
        self._pickles[name] = group
        self._memos.append(memo)
        for shared in self._owners.keys() & memo.keys():
            if _has_identity(memo[shared][1]):
                self._join(self._owners[shared], name)
        for met in memo:
            self._owners.setdefault(met, name)

    def _pickled(self, names: tuple[str, ...]) -> tuple[PickledGroup, _Memo]:
        parts, met = pickled({name: self._namespace[name] for name in names}, self._namespace, self._anchors)
        return PickledGroup(names, tuple(parts)), met

    # -- who belongs to whom --

    def _leader(self, name: str) -> str:
        while (leader := self._leaders[name]) != name:
            self._leaders[name] = self._leaders[leader]
            name = leader
        return name

    def _join(self, one: str, other: str) -> None:
        self._leaders[self._leader(other)] = self._leader(one)

    def _members(self) -> dict[str, list[str]]:
        members: dict[str, list[str]] = {}
        for name in self._leaders:
            members.setdefault(self._leader(name), []).append(name)
        return members

    def _joined(self, members: list[str]) -> PickledGroup:
        if len(members) == 1:
            return self._pickles[members[0]]
        return self._pickled(tuple(members))[0]


def _is_small_atom(value: object) -> bool:
    kind = type(value)
    if isinstance(value, ModuleType) and kind is ModuleType:
        return sys.modules.get(value.__name__) is value
    if kind in (float, complex) and value != value:
        return False  # a dictionary finds it by identity
    return kind in _ATOMS and (not isinstance(value, str | bytes) or len(value) <= _SMALL)


def _has_identity(value: object) -> bool:
    """Whether it matters that two variables lead to the same object, not to two equal ones."""
    kind = type(value)
    if kind in (float, complex):
        return value != value
    if kind in _ATOMS or kind in _EQUAL or kind.__module__ == "numpy.dtypes":
        return False
    if isinstance(value, type | FunctionType):
        return value.__module__ == "__main__"  # others are stored as names
    return True


def _reason(error: BaseException) -> str:
    text = bounded_str(error, _REASON_CHARS)
    return text if isinstance(error, NotKept) else f"{type(error).__name__}: {text}"
