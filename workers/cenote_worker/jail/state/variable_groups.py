"""Which variables have to be stored together, and their pickles.

Each variable is pickled by itself first. An object that two pickles have both met, unless any equal one would do
as well, joins their variables into one group, which is pickled once more as a whole. Joining too much costs
nothing but a longer stream: chunks are shared across groups.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, ModuleType

from cenote_worker.jail.rendering.bounded_text import bounded_str
from cenote_worker.jail.state.pickles_unsafe import Anchors, NotKept, OwnObjects, pickled
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_ATOMS = frozenset((int, float, complex, bool, type(None), str, bytes))
"""Equal ones are indistinguishable, except by `is`, which no program may rely on."""

_EQUAL = frozenset((tuple, frozenset, range, slice, CodeType, ModuleType, BuiltinFunctionType))
"""Indistinguishable too, apart from the items of a tuple, which are looked at by themselves."""

NOT_STATE = frozenset(("__builtins__", "__name__", "__warningregistry__"))
"""Names that every namespace has, or gets from the interpreter."""

_SMALL = 4 * 1024
"""Bytes or characters of an atom that is stored with all the other small ones, in one group."""

_REASON_CHARS = 300

_Memo = dict[int, tuple[int, object]]
"""What a pickler met, by identity."""


Key = str | tuple[str, str, str]
"""A name, or a place where something was set; see `state/library_changes.py`."""


@dataclass(frozen=True, slots=True)
class PickledGroup:
    """keys: names in the order of the namespace, and places of libraries. parts: the stream, then the buffers."""

    keys: tuple[Key, ...]
    parts: tuple[memoryview, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key for key in self.keys if isinstance(key, str))


@dataclass(frozen=True, slots=True)
class VariableGroups:
    """refused: names and places whose values cannot be stored, with the reason."""

    groups: tuple[PickledGroup, ...]
    refused: Mapping[Key, str]


def grouped(
    names: Iterable[str],
    namespace: Mapping[str, object],
    anchors: Anchors,
    places: Mapping[tuple[str, str, str], object] = MappingProxyType({}),
) -> VariableGroups:
    """Pickles of the named values, and of what was set in libraries. Never raises for their errors."""
    return _Grouping(namespace, anchors, places).of([*names, *places])


class _Grouping:
    """One pass over a namespace. Memos are kept until its end: they keep the objects alive, so that ids stay
    valid."""

    def __init__(
        self,
        namespace: Mapping[str, object],
        anchors: Anchors,
        places: Mapping[tuple[str, str, str], object],
    ) -> None:
        self._namespace = namespace
        self._places = places
        self._anchors = anchors
        self._own_objects: OwnObjects = {}
        self._owners: dict[int, Key] = {}
        self._leaders: dict[Key, Key] = {}
        self._memos: list[object] = []
        self._pickles: dict[Key, PickledGroup] = {}
        self._refused: dict[Key, str] = {}

    def of(self, keys: Iterable[Key]) -> VariableGroups:
        atoms: list[Key] = []
        for name in keys:
            value = self._value(name)
            if isinstance(name, str) and _is_small_atom(value):
                atoms.append(name)
            else:
                self._add(name, value)
        # Code that runs while values are rebuilt, as `__setstate__`, finds functions and classes by their names.
        code: set[Key] = {
            name for name, value in self._namespace.items() if isinstance(value, type | FunctionType)
        }
        ordered = sorted(self._members().values(), key=lambda members: not code.issuperset(members))
        groups = [self._joined(members) for members in ordered]
        if atoms:
            groups.insert(0, self._pickled(tuple(atoms))[0])
        return VariableGroups(tuple(groups), self._refused)

    def _value(self, key: Key) -> object:
        return self._namespace[key] if isinstance(key, str) else self._places[key]

    def _add(self, name: Key, value: object) -> None:
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

    def _pickled(self, keys: tuple[Key, ...]) -> tuple[PickledGroup, _Memo]:
        values = {key: self._value(key) for key in keys}
        parts, met = pickled(values, self._namespace, self._anchors, own=self._own_objects)
        return PickledGroup(keys, tuple(parts)), met

    # -- who belongs to whom --

    def _leader(self, name: Key) -> Key:
        while (leader := self._leaders[name]) != name:
            self._leaders[name] = self._leaders[leader]
            name = leader
        return name

    def _join(self, one: Key, other: Key) -> None:
        self._leaders[self._leader(other)] = self._leader(one)

    def _members(self) -> dict[Key, list[Key]]:
        members: dict[Key, list[Key]] = {}
        for name in self._leaders:
            members.setdefault(self._leader(name), []).append(name)
        return members

    def _joined(self, members: list[Key]) -> PickledGroup:
        if len(members) == 1:
            return self._pickles[members[0]]
        return self._pickled(tuple(members))[0]


def _is_small_atom(value: object) -> bool:
    kind = type(value)
    if isinstance(value, ModuleType) and kind is ModuleType:
        # One that a cell has put there cannot be imported elsewhere.
        return value.__spec__ is not None and sys.modules.get(value.__name__) is value
    if kind in (float, complex) and value != value:
        return False  # a dictionary finds it by identity
    return kind in _ATOMS and (not isinstance(value, str | bytes) or len(value) <= _SMALL)


def _has_identity(value: object) -> bool:
    """Whether it matters that two variables refer to the same object, not to two equal ones."""
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
