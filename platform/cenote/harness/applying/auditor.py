"""Checks a share of applied patches against a full run of the patched history. It decides, and runs nothing
itself.

Two ends of a history are compared by structure, not by bytes: pickles of equal values differ in order and sharing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from cenote_security.errors import CenoteError, RejectedError, UsageError
from cenote_worker.history.step import StepRecord

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
    comparison = _ValueComparison()
    shared = one.keys() & other.keys()
    unequal = {name for name in sorted(shared) if not comparison.same(one[name], other[name], 0)}
    return tuple(sorted((one.keys() ^ other.keys()) | unequal))


def same(one: object, other: object) -> bool:
    """Whether two values mean the same: type, content, order, sharing inside. NaN is NaN, 0.0 is not -0.0."""
    return _ValueComparison().same(one, other, 0)


class _ValueComparison:
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


AuditOutcome = Literal["same", "different", "unsteady", "not checked"]

_CELL: Final = re.compile(r"<cell \d+>")
"""Files of code in messages: a step that stands has the number that it had when it ran."""


_Part = tuple[Literal["name", "file", "step"], str | int]
"""A variable, a path, or the place of a step in its history."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unlike:
    """What one state has otherwise than another. names: variables. files: paths. steps: numbers of those that show,
    raise or call something else. All in order: of the alphabet, and of the history.
    """

    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.files or self.steps)

    def __str__(self) -> str:
        parts = (("steps", self.steps), ("variables", self.names), ("files", self.files))
        return "; ".join(f"{what} {', '.join(map(str, which))}" for what, which in parts if which)


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What came of running a patched history in full, in a second runtime.

    outcome: same; different, which is the alarm; unsteady: what differs also differs between two full runs;
    not checked: it cannot be run in full. reason: one sentence, empty when it is the same. unlike: what differs.
    described: variables of which type, shape and description were compared, since such values stay in their jail.
    """

    outcome: AuditOutcome
    reason: str = ""
    unlike: Unlike = field(default_factory=Unlike)
    described: tuple[str, ...] = ()


class UnsoundError(CenoteError):
    """The alarm of the auditor: a patched state is not that of a full run. The patch stays applied.

    audit: what differs. patch: its id. rerun, reused: the steps that the patch had run again, and that it had not.
    """

    def __init__(self, audit: Audit, patch: str, rerun: tuple[int, ...], reused: tuple[int, ...]) -> None:
        super().__init__(audit, patch, rerun, reused)
        self.audit = audit
        self.patch = patch
        self.rerun = rerun
        self.reused = reused

    def __str__(self) -> str:
        return (
            f"{self.audit.reason} (patch {self.patch}; run again: steps {_listed(self.rerun)}; not run again: "
            f"{_listed(self.reused)}). Take it back with `state.revert({self.patch!r})`, or `reset` the runtime and "
            "run the patched history anew; and report the history: this is a defect of Cenote"
        )


class InspectedState(Protocol):
    """A state, and the history that led to it, as they can be looked at."""

    @property
    def records(self) -> Sequence[StepRecord]:
        """All steps. Those of a full run end before one that would have called outside what was not recorded."""

    def described(self) -> Mapping[str, str]:
        """Its variables, in the order of the namespace: type, shape and description of each, as one text."""

    def value(self, name: str) -> object:
        """Of a variable, rebuilt. Raises RejectedError, UsageError for what stays in its jail."""

    def files(self) -> Mapping[str, bytes]:
        """Paths in the working directory, with a digest of the content of each."""


class AuditSubject(InspectedState, Protocol):
    """A runtime whose history can be run in full beside it."""

    def obstacle(self) -> str:
        """Why it cannot be, in one sentence; empty if nothing is known to be in the way."""

    def in_full(self) -> AbstractContextManager[InspectedState]:
        """A fresh runtime in which the same history has run, with recorded answers for all that it calls outside.

        Raises CenoteError where none can be had, or it was lost.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Auditor:
    """share: of patches to check, from 0 to 1. chance: a number from 0 to below 1, another one each time."""

    share: float
    chance: Callable[[], float]

    def audit(self, audited: AuditSubject) -> Audit | None:
        """None for a patch that the draw has passed over. What keeps it from being checked is in the result."""
        if self.chance() >= self.share:
            return None
        if reason := audited.obstacle():
            return Audit(outcome="not checked", reason=reason)
        try:
            return _checked(audited)
        except CenoteError as error:
            return Audit(outcome="not checked", reason=f"the full run did not come to its end: {error}")


def _checked(audited: AuditSubject) -> Audit:
    with audited.in_full() as full:
        first = _Comparison(audited, full)
        if not first.different:
            return Audit(outcome="same", described=first.described)
        with audited.in_full() as again:
            second = _Comparison(full, again)
            steady = frozenset() if second.early else first.different - second.different
    unlike = _unlike(steady or first.different, audited.records)
    outcome: AuditOutcome = "different" if steady else "unsteady"
    told = "a full run of the patched history gives something else" if steady else "two full runs differ"
    reason = f"{told}: {unlike}{_chance(audited.records)}"
    return Audit(outcome=outcome, reason=reason, unlike=unlike, described=first.described)


class _Comparison:
    """Of two states with their histories. different: where they are not the same. described: see Audit.

    early: one of the histories ended before the other.
    """

    def __init__(self, one: InspectedState, other: InspectedState) -> None:
        self._one = one
        self._other = other
        self._described: list[str] = []
        ends = min(len(one.records), len(other.records))
        self.early = len(one.records) != len(other.records)
        found = set(self._steps())
        if self.early:  # nothing is known of the shorter one after its end
            found.add(("step", ends))
        else:
            found.update(self._names(), self._files())
        self.different: frozenset[_Part] = frozenset(found)
        self.described = tuple(self._described)

    def _steps(self) -> Iterator[_Part]:
        pairs = zip(self._one.records, self._other.records, strict=False)
        for place, (one, other) in enumerate(pairs):
            if not _same_outputs(one, other):
                yield "step", place

    def _names(self) -> Iterator[_Part]:
        one, other = self._one.described(), self._other.described()
        for name in sorted(one.keys() | other.keys()):
            if name not in one or name not in other or not self._same(name, one[name], other[name]):
                yield "name", name
        if one.keys() == other.keys():  # programs can ask in which order they are
            yield from (("name", mine) for mine, others in zip(one, other, strict=True) if mine != others)

    def _files(self) -> Iterator[_Part]:
        one, other = self._one.files(), self._other.files()
        yield from (("file", path) for path in one.keys() | other.keys() if one.get(path) != other.get(path))

    def _same(self, name: str, one: str, other: str) -> bool:
        try:
            return same(self._one.value(name), self._other.value(name))
        except (RejectedError, UsageError):
            self._described.append(name)
            return same_text(one, other)


def _same_outputs(one: StepRecord, other: StepRecord) -> bool:
    mine, others = _shown(one), _shown(other)
    if one.status != other.status or len(mine) != len(others):
        return False
    return all(same_text(left, right) for left, right in zip(mine, others, strict=True))


def _shown(record: StepRecord) -> tuple[str, ...]:
    """Of figures and tables their kinds, and what they are as text: libraries put ids into HTML, and into SVG."""
    error = (record.error.type, record.error.message) if record.error is not None else ("", "")
    rich = (f"{sorted(bundle)} {bundle.get('text/plain', '')!r}" for bundle in record.outputs)
    texts = (record.stdout, record.stderr, record.value or "", *error, *rich)
    return tuple(_CELL.sub("<cell>", text) for text in texts)


def _unlike(parts: Collection[_Part], records: Sequence[StepRecord]) -> Unlike:
    names = sorted(str(key) for kind, key in parts if kind == "name")
    files = sorted(str(key) for kind, key in parts if kind == "file")
    places = sorted(int(key) for kind, key in parts if kind == "step")
    return Unlike(
        names=tuple(names), files=tuple(files), steps=tuple(records[place].number for place in places)
    )


def _chance(records: Sequence[StepRecord]) -> str:
    """Which steps may have had another result by themselves: two full runs may agree by chance."""
    drawn = [record.number for record in records if record.trace is not None and record.trace.unrepeatable]
    return f"; steps {_listed(tuple(drawn))} may give something else each time" if drawn else ""


def _listed(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps)) or "none"
