"""Whether two ends of a history mean the same: by structure, not by bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{4,16}\b")
_DEPTH: Final = 100
"""Deeper than this, values are taken to differ: it is more than any notebook nests, and less than Python can."""


def same_text(one: str, other: str) -> bool:
    """Equal but for addresses, which reprs and messages show."""
    return one == other or _ADDRESS.sub("0x", one) == _ADDRESS.sub("0x", other)


def differences(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[str, ...]:
    """Names that one of the two lacks, or that mean something else in it, sorted.

    All names are compared together: which of them share objects counts as well.
    """
    comparison = _Comparison()
    shared = one.keys() & other.keys()
    unequal = {name for name in sorted(shared) if not comparison.same(one[name], other[name], 0)}
    return tuple(sorted((one.keys() ^ other.keys()) | unequal))


def same(one: object, other: object) -> bool:
    """Whether two values mean the same: type, content, order, sharing inside. NaN is NaN, 0.0 is not -0.0."""
    return _Comparison().same(one, other, 0)


class _Comparison:
    """Pairs what it meets: an object here has to be one object there."""

    def __init__(self) -> None:
        self._pairs: dict[int, object] = {}
        self._backwards: dict[int, object] = {}
        self._alive: list[object] = []
        self._order = _Order()

    def same(self, one: object, other: object, depth: int) -> bool:
        if type(one) is not type(other) and _name(type(one)) != _name(type(other)):
            return False
        if depth > _DEPTH:
            return False
        if isinstance(one, _ATOMS):
            return _same_atoms(one, other)
        if id(one) in self._pairs or id(other) in self._backwards:
            return self._pairs.get(id(one)) is other and self._backwards.get(id(other)) is one
        self._pairs[id(one)], self._backwards[id(other)] = other, one
        self._alive += (one, other)
        return self._same_contents(one, other, depth + 1)

    def _same_contents(self, one: object, other: object, depth: int) -> bool:
        if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
            return self._same_sets(one, other, depth)
        if hasattr(one, "__array_interface__") or hasattr(one, "to_numpy"):
            return _same_arrays(one, other, lambda left, right: self.same(left, right, depth))
        mine, others = list(_parts(one)), list(_parts(other))
        return len(mine) == len(others) and all(
            self.same(left, right, depth) for left, right in zip(mine, others, strict=True)
        )

    def _same_sets(
        self, one: set[object] | frozenset[object], other: set[object] | frozenset[object], depth: int
    ) -> bool:
        mine, others = self._order.of(one), self._order.of(other)
        return len(mine) == len(others) and all(
            self.same(left, right, depth) for left, right in zip(mine, others, strict=True)
        )


class _Order:
    """Puts members of sets into one order, wherever they lie.

    Each object is looked at once: by their reprs, sets that share what is in them, layer upon layer, would take for
    ever. Code in a jail can make such ones, and numbers that Python writes out no more.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}

    def of(self, members: Iterable[object]) -> list[object]:
        return sorted(members, key=lambda member: self._digest(member, 0))

    def _digest(self, value: object, depth: int) -> bytes:
        if isinstance(value, _ATOMS):
            return _digest_of(value, [_atom(value)])
        if id(value) not in self._known:
            self._known[id(value)] = value, b""  # for what comes back to itself
            self._known[id(value)] = value, _digest_of(value, self._parts(value, depth + 1))
        return self._known[id(value)][1]

    def _parts(self, value: object, depth: int) -> list[bytes]:
        if depth > _DEPTH:
            return []
        if isinstance(value, frozenset):
            return sorted(self._digest(part, depth) for part in value)
        return [self._digest(part, depth) for part in _parts(value)]


def _digest_of(value: object, parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"\0".join(("/".join(_name(type(value))).encode(), *parts))).digest()


def _atom(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    text = f"{value:x}" if isinstance(value, int) else str(value)  # decimal digits are limited
    return text.encode("utf-8", "surrogatepass")


_ATOMS: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def _name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _same_atoms(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or (one == other and math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, complex) and isinstance(other, complex):
        return _same_atoms(one.real, other.real) and _same_atoms(one.imag, other.imag)
    return one == other


def _same_arrays(one: object, other: object, same: Callable[[object, object], bool]) -> bool:
    """Arrays, series and frames by dtype, shape and content, NaN being equal to itself. same: of two elements."""
    import numpy

    if hasattr(one, "equals"):  # with the labels of rows and columns, without the name of a series
        try:
            equal = bool(one.equals(other))
        except (RecursionError, TypeError, ValueError):  # by what is in the cells of a frame of objects
            return False
        return equal and _kind(one) == _kind(other)
    left, right = numpy.asarray(one), numpy.asarray(other)
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    if left.dtype == object:
        return all(same(a, b) for a, b in zip(left.ravel(), right.ravel(), strict=True))
    return left.tobytes() == right.tobytes() or bool(
        numpy.array_equal(left, right, equal_nan=left.dtype.kind in "fc")
    )


def _kind(array: object) -> list[str]:
    """With the names of its axes, which `equals` does not compare."""
    said = [str(getattr(array, attribute, "")) for attribute in ("dtype", "dtypes", "name", "names")]
    axes = (getattr(array, axis, None) for axis in ("index", "columns"))
    return [*said, *(str(getattr(axis, "names", "")) for axis in axes)]


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from (key, item)
    elif isinstance(value, list | tuple):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif isinstance(value, type) or callable(value):
        yield _ADDRESS.sub("0x", repr(value))
    elif hasattr(value, "__dict__"):
        yield from (part for pair in vars(value).items() for part in pair)
    else:
        yield _ADDRESS.sub("0x", repr(value))
