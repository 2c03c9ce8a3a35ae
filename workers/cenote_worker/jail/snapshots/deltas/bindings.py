"""Small plain values that names were bound to since the worker was copied: with them, the copy is the state of now.
So are lists, tuples, dictionaries and sets of them that are just that, with nobody else who could change them, small
arrays of numpy, frames of pandas and functions that cells have defined. What was imported is told by where it is.

The state comes back as it was, to what `is` says of its names. So what is bound is told by value only where nobody
else has the object, or Python itself has it once: then nothing can tell the new one from it. Files that were closed
are told by what can be seen of them. The rest is told by another name that has the same object in the copy. Anything
else is no such difference; nor is another order of the names, nor a name whose value was one that may do something
when it goes. What is not looked at is which of two equal values a container holds that cannot change themselves:
neither does a trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final
from weakref import getweakrefcount

from cenote_worker.jail.snapshots.deltas import numpy_arrays, pandas_frames, plain_objects
from cenote_worker.jail.snapshots.deltas.plain_objects import describe_file
from cenote_worker.jail.snapshots.deltas.plain_values_unsafe import is_interned, packed, unpacked
from cenote_worker.jail.snapshots.protocol import MAX_BINDINGS
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST_NAMES: Final = 64
"""Bound or deleted since the copy: from then on another copy is cheaper than telling them all again."""

_MOST_LOOKED_AT: Final = 2_000
"""Names of a namespace: looking at all of them may cost no more than a copy does."""

_MOST_PARTS: Final = 500
"""In a container: looking at them takes some 0.1 ms."""

_MOST_IN_ALL: Final = 1_000
"""Parts of containers that are looked at for each copy, some 0.2 ms: others take another copy when they change."""

_MAX_BITS: Final = 8 * MAX_BINDINGS
_PLAIN: Final = frozenset((type(None), type(Ellipsis), bool, int, float, complex, str, bytes))
_CONTAINERS: Final = frozenset((list, tuple, dict))
_WITH_SETS: Final = _CONTAINERS | {set}

_SINGLE: Final = frozenset((type(None), type(Ellipsis), bool))
_SMALL_NUMBERS: Final = range(-5, 257)

_CLOSED, _SET, _ARRAY, _FRAME, _FUNCTION, _OF_LIBRARY = range(6)
"""They stand where another name would, in what is told of a file that was closed, a set, an array or number of
numpy's, a frame or column of pandas', a function, or an object that a library has.
"""

_How = tuple[int | None, object]
_Told = tuple[str, str | int | None, object]

Source = tuple[str, list[int]]
"""A cell as it was written, and which of its lines were no Python."""

Sources = Callable[[str], Source | None]
"""By the file's name, which code has. None where it is no cell, or not known any more."""

_REBUILT: Final[Mapping[int, Callable[[Any, dict[str, object]], object]]] = {
    _CLOSED: lambda told, _: plain_objects.rebuild_file(told),
    _SET: lambda told, _: plain_objects.rebuild_set(told),
    _ARRAY: lambda told, _: numpy_arrays.rebuild_array(told),
    _FRAME: pandas_frames.rebuild_frame,
    _FUNCTION: plain_objects.rebuild_function,
    _OF_LIBRARY: lambda told, _: plain_objects.find_library_object(told),
}
"""Of what is told and the namespace that it is for."""

_count = sys.getrefcount
_modules = sys.modules


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingsBaseline:
    """A namespace when it was copied. identities: in its order. plain: values, held so that nothing else gets
    their identities. values: names of containers and arrays that were by value, and nobody else's. inert: names of
    what else does nothing when it goes. modules: how many were imported. rewritten: names that have been seen since
    with a container or an array where they had one then, and another content.
    """

    identities: Mapping[str, int]
    plain: Mapping[str, object]
    values: frozenset[str]
    inert: frozenset[str]
    modules: int
    rewritten: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, namespace: Mapping[str, object]) -> BindingsBaseline | None:
        """None for one that is too large, or has names that are no plain text."""
        if not _is_plain_namespace(namespace):
            return None
        return cls(
            identities={name: id(value) for name, value in namespace.items()},
            plain={name: value for name, value in namespace.items() if _is_small(value)},
            values=frozenset(_by_value(namespace)),
            inert=frozenset(name for name, value in namespace.items() if _is_inert(value, namespace)),
            modules=len(_modules),
        )


def no_sources(_filename: str) -> None:
    """Where nobody asks for them."""


def difference(
    base: BindingsBaseline,
    namespace: dict[str, object],
    written: Collection[str],
    sources: Sources = no_sources,
) -> bytes | None:
    """What has to be bound and deleted in a copy; None if that does not give the state of now.

    written: names whose values may be others, or have other content, than when `difference` was asked last. sources:
    of the cells that have defined functions.
    """
    if len(_modules) != base.modules or not _is_plain_namespace(namespace):
        return None
    base.rewritten.update(_rewritten(base, namespace, written))
    changed = [
        name
        for name, value in namespace.items()
        if base.identities.get(name) != id(value) or name in base.rewritten
    ]
    gone = [name for name in base.identities if name not in namespace]
    if len(changed) + len(gone) > MOST_NAMES or list(namespace) != _order(base, namespace, changed):
        return None
    left = {*changed, *gone}
    same = {identity: name for name, identity in base.identities.items() if name not in left}
    if not (
        _are_known(written, namespace, changed, base) and _may_go(left & base.identities.keys(), base, same)
    ):
        return None
    told = _told(base, namespace, changed, same)
    if told is None:
        return None
    data = packed((gone, told, _sources(told, sources)))
    return data if len(data) <= MAX_BINDINGS else None


def bring_about(namespace: dict[str, object], data: bytes) -> tuple[list[str], dict[str, Source]]:
    """In what has come of the copy. Gives the names that have another value now, or none, and the sources of cells.

    Raises whatever `data` makes of it that does not come from `difference`, for just this namespace.
    """
    gone, bound, sources = unpacked(data)
    for name in gone:
        del namespace[name]
    for name, how, value in bound:
        if how is None:
            namespace[name] = value
        else:
            namespace[name] = _REBUILT[how](value, namespace) if type(how) is int else namespace[how]
    return [*gone, *(name for name, _, _ in bound)], sources


def is_plain(value: object) -> bool:
    """Whether nothing of the user's runs when it is pickled, as far as that is seen at a glance."""
    if type(value) in _WITH_SETS:
        return _parts_of_any(value) is not None
    return _is_small(value) or numpy_arrays.is_inert(value) or pandas_frames.is_inert(value)


def _sources(told: list[_Told], sources: Sources) -> dict[str, Source]:
    """Of the cells that functions are told of."""
    names = {value[0].co_filename for _, how, value in told if how == _FUNCTION}  # type: ignore[index]
    found = ((name, sources(name)) for name in sorted(names))
    return {name: source for name, source in found if source is not None}


def _is_plain_namespace(namespace: Mapping[str, object]) -> bool:
    return len(namespace) <= _MOST_LOOKED_AT and all(type(name) is str for name in list(namespace))


def _order(base: BindingsBaseline, namespace: Mapping[str, object], changed: list[str]) -> list[str]:
    """That of the names in a copy in which these were bound: a name keeps its place until it is deleted."""
    kept = [name for name in base.identities if name in namespace]
    return kept + [name for name in changed if name not in base.identities]


def _rewritten(
    base: BindingsBaseline, namespace: Mapping[str, object], written: Collection[str]
) -> list[str]:
    """All names of containers in which there may be something else than in those that they had in the copy."""
    same = {name: id(value) for name, value in namespace.items() if base.identities.get(name) == id(value)}
    there = {same[name] for name in same.keys() & written if _may_be_by_value(namespace[name])}
    return [name for name, identity in same.items() if identity in there]


def _are_known(
    written: Collection[str],
    namespace: Mapping[str, object],
    changed: Collection[str],
    base: BindingsBaseline,
) -> bool:
    """Whether nothing was written into an object that is still there. What was bound anew is looked at in `_told`.

    Only of what the baseline holds, or a library, it is certain that no other object has its identity by now. What is
    imported again was bound and not changed.
    """
    there = [name for name in written if name in namespace]
    return all(
        name in changed
        or name in base.plain
        or plain_objects.describe_library_object(namespace[name]) is not None
        for name in there
    )


def _may_go(names: Collection[str], base: BindingsBaseline, same: Mapping[int, str]) -> bool:
    """Whether what these names had in the copy does nothing when they let go of it."""
    harmless = base.plain.keys() | base.values | base.inert
    return all(name in harmless or base.identities[name] in same for name in names)


def _told(
    base: BindingsBaseline, namespace: dict[str, object], changed: list[str], same: Mapping[int, str]
) -> list[_Told] | None:
    """Each name with another one that has the same object by then; or `_how` it is told by itself."""
    told, had, known = list[_Told](), dict(same), None
    for name in changed:
        identity = id(namespace[name])
        if identity in had:
            told.append((name, had[identity], None))
        elif _is_small(namespace[name]) and _is_one(namespace[name]):
            told.append((name, None, namespace[name]))
            had[identity] = name
        else:
            if known is None and pandas_frames.is_frame(namespace[name]):
                known = pandas_frames.axes_of((each, namespace[each]) for each in same.values())
            how = _how(name, namespace, base, known or {})
            if how is None:
                return None
            told.append((name, *how))
            had[identity] = name
    return told


def _how(
    name: str, namespace: dict[str, object], base: BindingsBaseline, known: pandas_frames.Known
) -> _How | None:
    """How an object is told that only names have, or a library: a word for what it is, and what stands for it."""
    if (there := plain_objects.describe_library_object(namespace[name])) is not None:
        return _OF_LIBRARY, there
    if numpy_arrays.is_one(namespace[name]) or _is_unshared(name, namespace, base):
        return _how_by_itself(namespace[name], namespace, known)
    return None


def _how_by_itself(value: object, namespace: dict[str, object], known: pandas_frames.Known) -> _How | None:
    if type(value) is set:
        told = plain_objects.describe_set(value) if _parts_of_set(value) is not None else None
        return None if told is None else (_SET, told)
    if _parts_of(value) is not None:
        return None, value
    for kind, other in (
        (_ARRAY, numpy_arrays.describe_array(value)),
        (_FRAME, pandas_frames.describe_frame(value, namespace, known)),
        (_FUNCTION, plain_objects.describe_function(value, namespace)),
        (_CLOSED, _file(value)),
    ):
        if other is not None:
            return kind, other
    return None


def _file(value: object) -> plain_objects.FileDescription | None:
    told = describe_file(value)
    return told if told is not None and plain_objects.can_rebuild_file(told) else None


def _is_inert(value: object, namespace: Mapping[str, object]) -> bool:
    """Whether it does nothing when it goes, if it is no container."""
    if type(value) is FunctionType:
        return plain_objects.describe_function(value, namespace) is not None
    return (
        numpy_arrays.is_inert(value)
        or pandas_frames.is_inert(value)
        or describe_file(value) is not None
        or plain_objects.describe_library_object(value) is not None
    )


def _may_be_by_value(value: object) -> bool:
    """Whether it is of a kind that `_by_value` may have found, and can be written into."""
    return type(value) in _WITH_SETS or numpy_arrays.is_plain(value)


def _is_small(value: object) -> bool:
    if type(value) is str or type(value) is bytes:
        return len(value) <= MAX_BINDINGS
    return type(value) in _PLAIN and (type(value) is not int or value.bit_length() <= _MAX_BITS)


def _by_value(namespace: Mapping[str, object]) -> Iterator[str]:
    """Names of containers that `_told` would tell of, as long as looking at them takes no longer than it may."""
    names, held, left = list(namespace), dict[int, int](), _MOST_IN_ALL
    for identity in map(id, namespace.values()):
        held[identity] = held.get(identity, 0) + 1
    for name in names:
        if _may_be_by_value(namespace[name]) and _count(namespace[name]) == held[id(namespace[name])] + 1:
            parts = _parts_of_any(namespace[name])
            left -= _MOST_PARTS if parts is None else parts + 1
            if left < 0:
                return
            if parts is not None:
                yield name


def _parts_of_any(value: object) -> int | None:
    """How much is to be looked at, in something that `_how_by_itself` would tell of; None for anything else."""
    if type(value) is set:
        return _parts_of_set(value)
    return _parts_of(value) if type(value) in _CONTAINERS else 0


def _parts_of(value: object) -> int | None:
    """How much is in it, if it is small and plain, or a container of such values and of others like it that it has
    for itself. Tuples that cannot change are values, whoever else has them.
    """
    if type(value) not in _CONTAINERS:
        return 0 if _is_small(value) else None
    waiting, parts = [(value, False)], 0
    while waiting:
        here, is_shared = waiting.pop()
        assert isinstance(here, (list, tuple, dict))
        parts += len(here)
        if parts > _MOST_PARTS or (isinstance(here, dict) and not all(map(_is_part, list(here)))):
            return None
        for place in list(here) if isinstance(here, dict) else range(len(here)):
            if type(here[place]) in _CONTAINERS:
                inside = is_shared or _count(here[place]) != 2  # the container's, and the argument
                if inside and type(here[place]) is not tuple:
                    return None
                waiting.append((here[place], inside))
            elif not _is_part(here[place]):
                return None
    return parts


def _parts_of_set(value: object) -> int | None:
    """The same of a set, to which there may be weak references besides."""
    if type(value) is not set or len(value) > _MOST_PARTS or getweakrefcount(value):
        return None
    return len(value) if all(map(_is_part, value)) else None


def _is_part(value: object) -> bool:
    """What is not equal to itself is found by its identity."""
    return _is_small(value) and value == value


def _is_one(value: object) -> bool:
    """Whether Python has it once, and gives that to whoever unpacks it."""
    if type(value) is int:
        return value in _SMALL_NUMBERS
    if type(value) is str:
        return (len(value) < 2 and value < "\u0100") or is_interned(value)
    return type(value) in _SINGLE


def _is_unshared(name: str, namespace: dict[str, object], base: BindingsBaseline) -> bool:
    """Whether only names have it, of which each is told. The copy's own old values, held here, are nobody's."""
    identity = id(namespace[name])
    held = sum(list(map(id, names.values())).count(identity) for names in (namespace, base.plain))
    return _count(namespace[name]) == held + 1  # and the argument
