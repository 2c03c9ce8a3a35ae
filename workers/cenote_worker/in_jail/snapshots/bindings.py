"""Small plain values that names were bound to since the worker was copied: with them, the copy is the state of now.
So are lists, tuples, dictionaries and sets of them that are just that, with nobody else who could change them.

The state comes back as it was, to what `is` says of its names. So what is bound is told by value only where nobody
else has the object, or Python itself has it once: then nothing can tell the new one from it. Files that were closed
are told by what can be seen of them. The rest is told by another name that has the same object in the copy. Anything
else is no such difference; nor is another order of the names, nor a name whose value was one that may do something
when it goes. What is not looked at is which of two equal values a container holds that cannot change themselves:
neither does a trace.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Final
from weakref import getweakrefcount

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots import closed_files, plain_sets
from cenote_worker.in_jail.snapshots.closed_files import told_of
from cenote_worker.in_jail.snapshots.line import MAX_BINDINGS
from cenote_worker.in_jail.snapshots.plain_values_unsafe import is_interned, packed, unpacked

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

_CLOSED: Final = ...
_SET: Final = True
"""They stand where another name would, in what is told of a file that was closed, or of a set."""

_Told = tuple[str, str | EllipsisType | bool | None, object]

_count = sys.getrefcount
_modules = sys.modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A namespace when it was copied. identities: in its order. plain: values, held so that nothing else gets
    their identities. values: names of containers that were by value, and nobody else's. closed: names of files that
    were. modules: how many were imported. rewritten: names that have been seen since with a container where they had
    one then, and another content.
    """

    identities: Mapping[str, int]
    plain: Mapping[str, object]
    values: frozenset[str]
    closed: frozenset[str]
    modules: int
    rewritten: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, namespace: Mapping[str, object]) -> Baseline | None:
        """None for one that is too large, or has names that are no plain text."""
        if not _is_plain_namespace(namespace):
            return None
        return cls(
            identities={name: id(value) for name, value in namespace.items()},
            plain={name: value for name, value in namespace.items() if _is_small(value)},
            values=frozenset(_by_value(namespace)),
            closed=frozenset(name for name, value in namespace.items() if told_of(value) is not None),
            modules=len(_modules),
        )


def difference(base: Baseline, namespace: dict[str, object], written: Collection[str]) -> bytes | None:
    """What has to be bound and deleted in a copy; None if that does not give the state of now.

    written: names whose values may be others, or have other content, than when `difference` was asked last.
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
    data = None if told is None else packed((gone, told))
    return data if data is not None and len(data) <= MAX_BINDINGS else None


def bring_about(namespace: dict[str, object], data: bytes) -> list[str]:
    """In what has come of the copy. Gives the names that have another value now, or none.

    Raises whatever `data` makes of it that does not come from `difference`, for just this namespace.
    """
    gone, bound = unpacked(data)
    for name in gone:
        del namespace[name]
    for name, other, value in bound:
        if other is _CLOSED:
            namespace[name] = closed_files.rebuilt(value)
        elif other is _SET:
            namespace[name] = plain_sets.rebuilt(value)
        else:
            namespace[name] = value if other is None else namespace[other]
    return [*gone, *(name for name, _, _ in bound)]


def _is_plain_namespace(namespace: Mapping[str, object]) -> bool:
    return len(namespace) <= _MOST_LOOKED_AT and all(type(name) is str for name in list(namespace))


def _order(base: Baseline, namespace: Mapping[str, object], changed: list[str]) -> list[str]:
    """That of the names in a copy in which these were bound: a name keeps its place until it is deleted."""
    kept = [name for name in base.identities if name in namespace]
    return kept + [name for name in changed if name not in base.identities]


def _rewritten(base: Baseline, namespace: Mapping[str, object], written: Collection[str]) -> list[str]:
    """All names of containers in which there may be something else than in those that they had in the copy."""
    same = {name: id(value) for name, value in namespace.items() if base.identities.get(name) == id(value)}
    there = {same[name] for name in same.keys() & written if type(namespace[name]) in _WITH_SETS}
    return [name for name, identity in same.items() if identity in there]


def _are_known(
    written: Collection[str], namespace: Mapping[str, object], changed: Collection[str], base: Baseline
) -> bool:
    """Whether nothing was written into an object that is still there. What was bound anew is looked at in `_told`.

    Only of what the baseline holds it is certain that no other object has its identity by now.
    """
    there = [name for name in written if name in namespace]
    return all(name in changed or name in base.plain for name in there)


def _may_go(names: Collection[str], base: Baseline, same: Mapping[int, str]) -> bool:
    """Whether what these names had in the copy does nothing when they let go of it."""
    harmless = base.plain.keys() | base.values | base.closed
    return all(name in harmless or base.identities[name] in same for name in names)


def _told(
    base: Baseline, namespace: dict[str, object], changed: list[str], same: Mapping[int, str]
) -> list[_Told] | None:
    """Each name with another one that has the same object by then; or `_how` it is told by itself."""
    told, had = list[_Told](), dict(same)
    for name in changed:
        identity = id(namespace[name])
        if identity in had:
            told.append((name, had[identity], None))
        elif _is_small(namespace[name]) and _is_one(namespace[name]):
            told.append((name, None, namespace[name]))
            had[identity] = name
        elif _is_unshared(name, namespace, base) and (how := _how(namespace[name])) is not None:
            told.append((name, *how))
            had[identity] = name
        else:
            return None
    return told


def _how(value: object) -> tuple[EllipsisType | bool | None, object] | None:
    """How an object is told that only names have: what stands for it, with a word that says what that is."""
    if isinstance(value, set):
        told = plain_sets.told_of(value) if _parts_of_set(value) is not None else None
        return None if told is None else (_SET, told)
    if _parts_of(value) is not None:
        return None, value
    file = _file(value)
    return None if file is None else (_CLOSED, file)


def _file(value: object) -> closed_files.Told | None:
    told = told_of(value)
    return told if told is not None and closed_files.can_be_rebuilt(told) else None


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
        if type(namespace[name]) in _WITH_SETS and _count(namespace[name]) == held[id(namespace[name])] + 1:
            parts = (
                _parts_of_set(namespace[name]) if type(namespace[name]) is set else _parts_of(namespace[name])
            )
            left -= _MOST_PARTS if parts is None else parts + 1
            if left < 0:
                return
            if parts is not None:
                yield name


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


def _is_unshared(name: str, namespace: dict[str, object], base: Baseline) -> bool:
    """Whether only names have it, of which each is told. The copy's own old values, held here, are nobody's."""
    identity = id(namespace[name])
    held = sum(list(map(id, names.values())).count(identity) for names in (namespace, base.plain))
    return _count(namespace[name]) == held + 1  # and the argument
