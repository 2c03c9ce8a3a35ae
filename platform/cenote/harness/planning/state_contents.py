"""What a state holds, as far as the records of its steps show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cenote_worker.execution.trace import (
    ABSENT,
    ANYTHING,
    TREE,
    Location,
    StepTrace,
    Version,
    key_of,
    kind_of,
    name,
)
from cenote_worker.history.step import START, StepRecord

_UNKNOWN: Final = "?"

_OF_FILES: Final = Version(f"{_UNKNOWN}files")
"""Version of the working directory as a whole, when only its files are known."""


def writes_anything(trace: StepTrace | None) -> bool:
    """Whether a step may have changed more than is listed. An unwatched step counts as such."""
    return trace is None or bool(trace.opaque) or ANYTHING in trace.writes


def reads_anything(trace: StepTrace | None) -> bool:
    """Whether a step may depend on more than is listed."""
    return trace is None or bool(trace.opaque) or ANYTHING in trace.reads


def effects(record: StepRecord) -> StepTrace | None:
    """What the step did to the state; None when it is not known. A step that was refused or undone did nothing."""
    return StepTrace() if record.status in ("refused", "rolled_back") else record.trace


def is_known(version: Version) -> bool:
    """Whether a version was seen, and is not only a token for what an unwatched step left."""
    return not version.startswith(_UNKNOWN)


@dataclass(kw_only=True, slots=True)
class Contents:
    """Versions of locations, who wrote them, and which of them share changeable objects.

    Of a location that no watched step has written, the version is a token of the era: the last step that may have
    written anything, 0 for the start. Two such tokens are equal when nothing can have changed in between, so the
    comparison of versions stays right where nothing is known.

    The working directory as a whole is what its files are. A step that writes one of them leaves a whole that depends
    on all the others, which it has not read: what its trace says of the whole is true of its own history only.
    """

    learned: dict[tuple[Location, int], Version] = field(default_factory=dict)
    _era: int = 0
    _versions: dict[Location, Version] = field(default_factory=dict)
    _writers: dict[Location, int] = field(default_factory=dict)
    _groups: dict[Location, frozenset[Location]] = field(default_factory=dict)
    _order: dict[Location, None] = field(default_factory=dict)
    """Names that are there, as the namespace has them; of those that were there before the first step, the ones that
    clients have put in."""
    _files: set[Location] = field(default_factory=set)
    """Files whose versions are known."""
    _unlisted: Version = ABSENT
    """Stands for what a step did that wrote unknown files."""

    def copy(self) -> Contents:
        """Independent, but for what is learned of the same eras, which holds for both."""
        return Contents(
            learned=self.learned,
            _era=self._era,
            _versions=dict(self._versions),
            _writers=dict(self._writers),
            _groups=dict(self._groups),
            _order=dict(self._order),
            _files=set(self._files),
            _unlisted=self._unlisted,
        )

    @property
    def era(self) -> int:
        return self._era

    @property
    def order(self) -> list[Location]:
        """Order of the names that clients and steps have bound."""
        return list(self._order)

    def arrange(self, other: Contents) -> None:
        """The names stand as in the other, which has the same ones."""
        self._order = dict(other._order)

    def version(self, location: Location) -> Version:
        known = self._versions.get(location)
        if known is not None:
            return known
        if location == TREE and self._files:
            return _OF_FILES
        return self.learned.get((location, self._era), Version(f"{_UNKNOWN}{self._era}"))

    def writer(self, location: Location) -> int:
        """The number of the step that last wrote it, or of the one that may have."""
        return self._writers.get(location, self._era)

    def group(self, location: Location) -> frozenset[Location]:
        """The location, and all that share changeable objects with it."""
        return self._groups.get(location, frozenset((location,)))

    def company(self, location: Location) -> frozenset[Location] | None:
        """As `group`; None if not known: the name was there when the era began, and no step has recorded it since."""
        if kind_of(location) != "name" or self.version(location) == ABSENT:
            return self.group(location)
        return self._groups.get(location)

    def tells_alike(self, other: Contents) -> bool:
        """Whether the company of the same names is unknown in both: any of these may be with any other."""
        told = (one for one in self._groups.keys() ^ other._groups.keys() if kind_of(one) == "name")
        return all((other if one in self._groups else self).version(one) == ABSENT for one in told)

    @property
    def told(self) -> dict[Location, Version]:
        """All that is known to be there, with its version: what was written in this era, or found unwritten."""
        found = {one: version for (one, era), version in self.learned.items() if era == self._era}
        known = {**found, **self._versions}
        return {one: version for one, version in known.items() if is_known(version) and version != ABSENT}

    @property
    def names(self) -> frozenset[Location]:
        """Names that are known to be there, of those that were written in this era."""
        known = self._versions.items()
        return frozenset(one for one, version in known if kind_of(one) == "name" and version != ABSENT)

    def same(self, other: Contents, location: Location) -> bool:
        """Whether both hold the same there."""
        if location != TREE:
            return self.version(location) == other.version(location)
        files = self._files | other._files
        return self.same_unlisted(other) and all(self.version(each) == other.version(each) for each in files)

    def same_unlisted(self, other: Contents) -> bool:
        """Whether the same step, if any, was the last that wrote unknown files."""
        return (self._era, self._unlisted) == (other._era, other._unlisted)

    def agrees(self, other: Contents, location: Location) -> bool:
        """Whether both hold the same there, shared with the same others."""
        return self.same(other, location) and self.company(location) == other.company(location)

    def differing(self, other: Contents) -> set[Location]:
        """All locations in which the two do not agree; both must be of one era."""
        known = self._versions.keys() | other._versions.keys() | self._groups.keys() | other._groups.keys()
        known |= {TREE}
        return {location for location in known if not self.agrees(other, location)}

    def learn(self, location: Location, version: Version) -> None:
        """A step was seen to find this version: so it was there since the last write."""
        if location not in self._versions and not (location == TREE and self._files):
            self.learned.setdefault((location, self._era), version)

    def correct(self, location: Location, version: Version) -> None:
        """The live state was asked, and knows better than the records."""
        if _is_file(location) and self._versions.get(location, version) == version:
            self._files.add(location)  # it was so all the time: what is known of the whole stays true
            self._versions[location] = version
        else:
            self._hold(location, version)

    def fold(self, number: int, trace: StepTrace | None) -> set[Location]:
        """The contents after a step. Returns the locations whose version or company may have changed."""
        if trace is None or writes_anything(trace):
            self._era = number
            for known in (self._versions, self._writers, self._groups, self._files):
                known.clear()
            self._unlisted = ABSENT
        if trace is None:
            return set()
        written = {location: version for location, version in trace.writes.items() if location != ANYTHING}
        if any(map(_is_file, written)):
            written[TREE] = _OF_FILES
        elif TREE in written:
            self._unlisted = written[TREE]
        for location, version in written.items():
            self._hold(location, version)
            if kind_of(location) == "name":
                if version == ABSENT or location in trace.moved:
                    self._order.pop(location, None)
                if version != ABSENT:
                    self._order.setdefault(location)
        self._writers.update(dict.fromkeys(written, number))
        present = [frozenset(one for one in group if written.get(one) != ABSENT) for group in trace.groups]
        return written.keys() | self._regroup(written, present)

    def _hold(self, location: Location, version: Version) -> None:
        if _is_file(location):
            self._files.add(location)
            self._versions.pop(TREE, None)
        if version != _OF_FILES:
            self._versions[location] = version

    def take(self, other: Contents, locations: Iterable[Location]) -> set[Location]:
        """These whole groups become as they are in the other. Returns what may have changed."""
        taken = set(locations)
        if TREE in taken:
            self._unlisted = other._unlisted
        elif any(map(_is_file, taken)):
            taken.add(TREE)
        for location in taken - {TREE}:
            self._hold(location, other.version(location))
            self._writers[location] = other.writer(location)
        return taken | self._regroup(taken, {other.group(location) for location in taken})

    def _regroup(self, moved: Iterable[Location], groups: Iterable[frozenset[Location]]) -> set[Location]:
        """Takes locations out of the groups they were in, and puts them into these."""
        groups = list(groups)
        leaving = set(moved).union(*groups)
        touched = set(leaving)
        for former in dict.fromkeys(self._groups[each] for each in leaving if each in self._groups):
            rest = former - leaving
            touched |= rest
            self._groups.update(dict.fromkeys(rest, rest))
        self._groups.update((location, frozenset((location,))) for location in leaving)
        for group in groups:
            self._groups.update(dict.fromkeys(group, group))
        return touched


def _is_file(location: Location) -> bool:
    return kind_of(location) == "file" and location != TREE


def left_outside(records: Iterable[StepRecord]) -> dict[Location, Version]:
    """Files outside the working directory that these steps have written: going back leaves them as they are."""
    traces = [effects(record) for record in records]
    written = [item for trace in traces if trace is not None for item in trace.writes.items()]
    return {one: version for one, version in written if _is_file(one) and key_of(one).startswith("/")}


def made_by(records: Iterable[StepRecord]) -> frozenset[Location]:
    """Files that the first of these steps which is known to have looked at them has not found."""
    first = dict[Location, Version]()
    for record in records:
        for location, version in (record.trace.reads if record.trace else {}).items():
            if _is_file(location):
                first.setdefault(location, version)
    return frozenset(location for location, version in first.items() if version == ABSENT)


class Timeline:
    """The contents after each step of a line that was run, worked out once from its start.

    A version found by a later step is known to have been there before, so the records are read twice: once to
    learn versions, once to fold the steps.
    """

    def __init__(self, records: Sequence[StepRecord], begun: Iterable[str] = ()) -> None:
        """begun: names that were there before the first step, in their order: a step that changes one leaves it in
        its place."""
        self.records = tuple(records)
        self._start = Contents(_order=dict.fromkeys(map(name, begun)))
        learning = self._start.copy()
        for record in self.records:
            for location, version in (record.trace.reads if record.trace else {}).items():
                learning.learn(location, version)
            learning.fold(record.number, effects(record))

    def at(self, numbers: Iterable[int]) -> dict[int, Contents]:
        """The contents after these steps of the line, 0 being its start; others are left out."""
        wanted = set(numbers)
        found = {0: self._start.copy()} if 0 in wanted else {}
        contents = self._start.copy()
        for record in self.records:
            contents.fold(record.number, effects(record))
            if record.number in wanted:
                found[record.number] = contents.copy()
        return found


def found_at_first(records: Sequence[StepRecord], kind: str = "name") -> Mapping[Location, Version]:
    """Locations as the steps of a line have found them that none of them had written, with known versions."""
    start = Timeline(records).at((START,))[START]
    read = {location for record in records if record.trace is not None for location in record.trace.reads}
    found = {location: start.version(location) for location in sorted(read) if kind_of(location) == kind}
    return {location: version for location, version in found.items() if is_known(version)}
