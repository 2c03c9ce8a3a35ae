"""Small plain values that names were bound to since the worker was copied: with them, the copy is the current state.
This includes lists, tuples, dictionaries and sets of plain values that no other object can change, small arrays of
numpy, frames of pandas, and functions that cells have defined. An imported object is sent as its place in its module.

The restored state is equal to the original, including what `is` says of its names. So a value is sent by value only
if no other object refers to it, or if Python has a single instance of it: then the new object is indistinguishable.
Closed files are sent as their visible attributes. Any other object is sent as another name that has the same object
in the copy. Anything else cannot be sent as bindings; nor can another order of the names, nor a name whose old value
may run code when it is released. Which of two equal immutable values a container holds is not looked at: a trace does
not look either.
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
"""Bound or deleted since the copy: with more, another copy is cheaper than sending them all again."""

_MOST_LOOKED_AT: Final = 2_000
"""Names of a namespace: looking at all of them may cost no more than a copy does."""

_MOST_PARTS: Final = 500
"""Parts of a container: looking at them takes some 0.1 ms."""

_MOST_IN_ALL: Final = 1_000
"""Parts of containers that are looked at for each copy, some 0.2 ms. A change to other containers needs another
copy."""

_MAX_BITS: Final = 8 * MAX_BINDINGS
_PLAIN: Final = frozenset((type(None), type(Ellipsis), bool, int, float, complex, str, bytes))
_CONTAINERS: Final = frozenset((list, tuple, dict))
_WITH_SETS: Final = _CONTAINERS | {set}

_SINGLE: Final = frozenset((type(None), type(Ellipsis), bool))
_SMALL_NUMBERS: Final = range(-5, 257)

_CLOSED, _SET, _ARRAY, _FRAME, _FUNCTION, _OF_LIBRARY = range(6)
"""They stand in place of another name, in the description of a closed file, a set, a numpy array or number, a pandas
frame or column, a function, or an object of a library.
"""

_How = tuple[int | None, object]
_Told = tuple[str, str | int | None, object]

Source = tuple[str, list[int]]
"""A cell's source, and which of its lines are not Python."""

Sources = Callable[[str], Source | None]
"""Gives a source by file name, as in code objects. None if it is no cell, or no longer known."""

_REBUILT: Final[Mapping[int, Callable[[Any, dict[str, object]], object]]] = {
    _CLOSED: lambda told, _: plain_objects.rebuild_file(told),
    _SET: lambda told, _: plain_objects.rebuild_set(told),
    _ARRAY: lambda told, _: numpy_arrays.rebuild_array(told),
    _FRAME: pandas_frames.rebuild_frame,
    _FUNCTION: plain_objects.rebuild_function,
    _OF_LIBRARY: lambda told, _: plain_objects.find_library_object(told),
}
"""Each takes a description and the namespace that it is for."""

_count = sys.getrefcount
_modules = sys.modules


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingsBaseline:
    """A namespace when it was copied. identities: in its order. plain: values, held so that no other object gets
    their identities. values: names of containers and arrays that were by value, and that no other object referred to.
    inert: names of other values that run no code when released. modules: how many were imported. rewritten: names
    whose container or array is still the same object, but whose content has been seen to change.
    """

    identities: Mapping[str, int]
    plain: Mapping[str, object]
    values: frozenset[str]
    inert: frozenset[str]
    modules: int
    rewritten: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, namespace: Mapping[str, object]) -> BindingsBaseline | None:
        """None for a namespace that is too large, or has names that are not plain strings."""
        if not _is_plain_namespace(namespace):
            return None
        return cls(
            identities={name: id(value) for name, value in namespace.items()},
            plain={name: value for name, value in namespace.items() if _is_small(value)},
            values=frozenset(_by_value(namespace)),
            inert=frozenset(name for name, value in namespace.items() if _is_inert(value, namespace)),
            modules=len(_modules),
        )


NOTHING: Final[Mapping[str, object]] = {}


def no_sources(_filename: str) -> None:
    """For a caller that needs no sources."""


def difference(
    base: BindingsBaseline,
    namespace: dict[str, object],
    written: Collection[str],
    sources: Sources = no_sources,
    held: Mapping[str, object] = NOTHING,
) -> bytes | None:
    """What has to be bound and deleted in a copy; None if that does not give the current state.

    written: names whose values may be others, or have other content, than at the last call of `difference`. sources:
    of the cells that have defined functions. held: references to values that the worker itself has.
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
    told = _told(base, namespace, changed, same, held)
    if told is None:
        return None
    data = packed((gone, told, _sources(told, sources)))
    return data if len(data) <= MAX_BINDINGS else None


def bring_about(namespace: dict[str, object], data: bytes) -> tuple[list[str], dict[str, Source]]:
    """Applies a difference in the process that came from the copy. Returns the names whose value has changed or that
    are gone, and the sources of cells.

    Raises any error if `data` does not come from `difference` for this very namespace.
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
    """Whether pickling it runs no user code, as far as a quick look shows."""
    if type(value) in _WITH_SETS:
        return _parts_of_any(value) is not None
    return _is_small(value) or numpy_arrays.is_inert(value) or pandas_frames.is_inert(value)


def _sources(told: list[_Told], sources: Sources) -> dict[str, Source]:
    """The sources of the cells that define the functions in `told`."""
    names = {value[0].co_filename for _, how, value in told if how == _FUNCTION}  # type: ignore[index]
    found = ((name, sources(name)) for name in sorted(names))
    return {name: source for name, source in found if source is not None}


def _is_plain_namespace(namespace: Mapping[str, object]) -> bool:
    return len(namespace) <= _MOST_LOOKED_AT and all(type(name) is str for name in list(namespace))


def _order(base: BindingsBaseline, namespace: Mapping[str, object], changed: list[str]) -> list[str]:
    """The order of names in a copy in which these were bound: a name keeps its place until it is deleted."""
    kept = [name for name in base.identities if name in namespace]
    return kept + [name for name in changed if name not in base.identities]


def _rewritten(
    base: BindingsBaseline, namespace: Mapping[str, object], written: Collection[str]
) -> list[str]:
    """All names of containers whose content may differ from that in the copy."""
    same = {name: id(value) for name, value in namespace.items() if base.identities.get(name) == id(value)}
    there = {same[name] for name in same.keys() & written if _may_be_by_value(namespace[name])}
    return [name for name, identity in same.items() if identity in there]


def _are_known(
    written: Collection[str],
    namespace: Mapping[str, object],
    changed: Collection[str],
    base: BindingsBaseline,
) -> bool:
    """Whether nothing was written into an object that is still there. New bindings are checked in `_told`.

    Only for objects that the baseline or a library holds is it certain that no other object has their identity by
    now. A repeated import has bound the object and not changed it.
    """
    there = [name for name in written if name in namespace]
    return all(
        name in changed
        or name in base.plain
        or plain_objects.describe_library_object(namespace[name]) is not None
        for name in there
    )


def _may_go(names: Collection[str], base: BindingsBaseline, same: Mapping[int, str]) -> bool:
    """Whether the values that these names had in the copy run no code when they are released."""
    harmless = base.plain.keys() | base.values | base.inert
    return all(name in harmless or base.identities[name] in same for name in names)


def _told(
    base: BindingsBaseline,
    namespace: dict[str, object],
    changed: list[str],
    same: Mapping[int, str],
    held: Mapping[str, object],
) -> list[_Told] | None:
    """Each name with another name that then has the same object; or with its own description by `_how`."""
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
            how = _how(name, namespace, (base.plain, held), known or {})
            if how is None:
                return None
            told.append((name, *how))
            had[identity] = name
    return told


def _how(
    name: str,
    namespace: dict[str, object],
    ours: tuple[Mapping[str, object], ...],
    known: pandas_frames.Known,
) -> _How | None:
    """How to describe an object that only names refer to, or a library: its kind, and its description."""
    if (there := plain_objects.describe_library_object(namespace[name])) is not None:
        return _OF_LIBRARY, there
    if numpy_arrays.is_one(namespace[name]) or _is_unshared(name, namespace, ours):
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
    """Whether it runs no code when it is released, if it is no container."""
    if type(value) is FunctionType:
        return plain_objects.is_inert_function(value, namespace)
    return (
        numpy_arrays.is_inert(value)
        or pandas_frames.is_inert(value)
        or describe_file(value) is not None
        or plain_objects.describe_library_object(value) is not None
    )


def _may_be_by_value(value: object) -> bool:
    """Whether it is mutable and of a kind that `_by_value` may have found."""
    return type(value) in _WITH_SETS or numpy_arrays.is_plain(value)


def _is_small(value: object) -> bool:
    if type(value) is str or type(value) is bytes:
        return len(value) <= MAX_BINDINGS
    return type(value) in _PLAIN and (type(value) is not int or value.bit_length() <= _MAX_BITS)


def _by_value(namespace: Mapping[str, object]) -> Iterator[str]:
    """Names of containers that `_told` can describe, as long as looking at them stays within its limits."""
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
    """How many parts to look at, in something that `_how_by_itself` can describe; None for anything else."""
    if type(value) is set:
        return _parts_of_set(value)
    return _parts_of(value) if type(value) in _CONTAINERS else 0


def _parts_of(value: object) -> int | None:
    """How many parts it has, if it is small and plain, or a container of such values and of similar containers that
    no other object refers to. Tuples that cannot change are values, even if other objects refer to them.
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
    """The same for a set, which may have weak references besides."""
    if type(value) is not set or len(value) > _MOST_PARTS or getweakrefcount(value):
        return None
    return len(value) if all(map(_is_part, value)) else None


def _is_part(value: object) -> bool:
    """False for a value that is not equal to itself, which is found by its identity."""
    return _is_small(value) and value == value


def _is_one(value: object) -> bool:
    """Whether Python has a single instance of it, which unpacking gives."""
    if type(value) is int:
        return value in _SMALL_NUMBERS
    if type(value) is str:
        return (len(value) < 2 and value < "\u0100") or is_interned(value)
    if type(value) is bytes:
        return len(value) < 2
    return type(value) in _SINGLE


def _is_unshared(name: str, namespace: dict[str, object], ours: tuple[Mapping[str, object], ...]) -> bool:
    """Whether only names refer to it, each of which is sent. References that the worker has (`ours`) don't count."""
    identity = id(namespace[name])
    held = sum(list(map(id, names.values())).count(identity) for names in (namespace, *ours))
    return _count(namespace[name]) == held + 1  # and the argument
