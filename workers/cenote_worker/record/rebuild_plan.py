"""Plans which parts of a state that is not stored by value can be rebuilt, and by which steps. Pure.

The walk goes backwards along the steps that led to the state. What a step read is available to its rerun in one of
three ways: an earlier rerun step writes it; it is stored, and no step has changed it since; or it is as in a fresh
runtime. The second and the third hold only if no rerun step writes it: otherwise the steps must provide it as well,
and the walk begins anew.

A step with an incomplete trace may have read and written anything. Then nothing is known to be as stored, and all
steps before it are rerun. Names that share mutable objects are rebuilt together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from cenote_worker.checkpoints.state import Rebuild, State
from cenote_worker.execution.trace import (
    ABSENT,
    ANYTHING,
    BLIND,
    LIBRARIES,
    Location,
    StepTrace,
    Version,
    file,
    hidden,
    key_of,
    kind_of,
    name,
)
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import written
from cenote_worker.record.lineage import (
    DRAWN,
    CannotRebuildError,
    Lineage,
    check_repeatable,
    is_seeded,
    not_drawn,
)


class SharedObjects:
    """Which of the common names share objects.

    After a step with an incomplete trace, any two names that existed may share something: an opaque object may lead
    to both.
    """

    def __init__(self, line: Sequence[StepRecord], begun: Iterable[str]) -> None:
        """begun: names that existed before the first step."""
        walk = _SharingWalk(map(name, begun))
        for record in line:
            if record.stays:
                walk.go_on(record)
        self._groups = walk.groups()

    def group(self, location: Location) -> frozenset[Location]:
        """The name and all that may share objects with it."""
        return self._groups.get(location, frozenset((location,)))


def _held_unseen(trace: StepTrace) -> Iterator[Collection[Location]]:
    """All names of the step, if it made an opaque object: that may refer to any of them."""
    if any(reason.endswith(BLIND) for reason in trace.unportable.values()):
        yield {each for each in (*trace.reads, *trace.writes) if kind_of(each) == "name"}


class _SharingWalk:
    """Sets are changed in place: a jail may report thousands of names in one, and thousands that leave it."""

    def __init__(self, begun: Iterable[Location]) -> None:
        self._crowd: set[Location] = set()
        """Names of which any two may share something."""
        self._apart = {each: {each} for each in begun}
        """For each other name, the set that it is in."""

    def groups(self) -> dict[Location, frozenset[Location]]:
        found = dict[Location, frozenset[Location]]()
        for group in (self._crowd, *self._apart.values()):
            if not group.isdisjoint(found):
                continue
            whole = frozenset(group)
            found.update(dict.fromkeys(whole, whole))
        return found

    def go_on(self, record: StepRecord) -> None:
        trace = record.trace
        if trace is not None:
            written = {each: version for each, version in trace.writes.items() if kind_of(each) == "name"}
            for each, version in written.items():
                if version == ABSENT:
                    self._leave(each)
                    self._apart.pop(each, None)
                elif each not in trace.mutated or not self._knows(each):
                    self._leave(each)
                    self._apart[each] = {each}
            for group in (*trace.groups, *_held_unseen(trace)):
                self._join([each for each in group if self._knows(each)])
        if record.unknown:
            self._crowd.update(self._apart)
            self._apart.clear()

    def _knows(self, location: Location) -> bool:
        return location in self._crowd or location in self._apart

    def _leave(self, location: Location) -> None:
        self._crowd.discard(location)
        self._apart.get(location, self._crowd).discard(location)

    def _join(self, members: Sequence[Location]) -> None:
        """Joins the members' sets: smaller sets into larger ones, and all into the crowd."""
        if not self._crowd.isdisjoint(members):
            for each in members:
                for moved in self._apart.get(each, ()):
                    del self._apart[moved]
                    self._crowd.add(moved)
            return
        joined = set[Location]()
        for each in members:
            group = self._apart[each]
            if group is joined:
                continue
            smaller, joined = sorted((joined, group), key=len)
            joined |= smaller
            self._apart.update(dict.fromkeys(smaller, joined))


TREE: Final = file(".")
"""Which files there are, and what is in them."""

_STORED_STATES: Final = frozenset(map(hidden, ("environ", "sys.path", "warnings")))
"""States of the process that a checkpoint contains, and that can be restored before anything else."""

_CWD: Final = hidden("cwd")
"""It is stored, too. But its folder may have to be made first, by rerun steps."""

_UNSTORED_STATES: Final = frozenset(
    (*map(hidden, ("logging", "locale", "process", "matplotlib", "pandas", "decimal", "numpy")), LIBRARIES)
)
"""States that are in a restored runtime as in a fresh one, unless a stored state has them."""

MAX_TRIES: Final = 50
"""Walks along the line; each disproves one more assumption. After that no assumption is made: steps provide all."""

STANDARD: Final = frozenset(("__name__", "__builtins__", "__warningregistry__"))
"""Names that every namespace has or gets from the interpreter."""


@dataclass(frozen=True, slots=True)
class RestoredState:
    """What a restore brings back without rerunning steps. hosts: names of objects that clients give again."""

    locations: frozenset[Location]
    hosts: frozenset[str]

    @classmethod
    def of(cls, state: State, line: Lineage) -> RestoredState:
        """line: the steps that led to the state."""
        lost = state.names_to_rebuild()
        names = {name(each) for group in state.groups for each in group.names if each not in lost}
        hosts = frozenset(state.message.hosts)
        paths = {file(each.message.path.decode("utf-8", "surrogateescape")) for each in state.files}
        states = _STORED_STATES | {_CWD, *_settings(state)} if _is_restored(line) else _STORED_STATES
        return cls(frozenset({*names, *map(name, hosts), *paths, TREE, *states}), hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildContext:
    """What is known besides the line. reaches_out: see `check_repeatable`. first: see `first_versions`.

    injected: names that clients injected before the first step, and that are unchanged since.
    """

    stored: RestoredState
    injected: frozenset[Location]
    sharing: SharedObjects
    first: Mapping[Location, Version]
    reaches_out: bool


@dataclass(slots=True)
class _Assumptions:
    """forbidden: locations that steps must write. strict: nothing is assumed to exist without a step."""

    forbidden: set[Location] = field(default_factory=set)
    strict: bool = False


def steps_for(
    roots: Collection[Location], line: Lineage, around: RebuildContext
) -> tuple[list[StepRecord], frozenset[Location]]:
    """The steps that rebuild these names, in order, and their stored input. Raises CannotRebuildError."""
    assumptions = _Assumptions()
    for tried in count():
        assumptions.strict |= tried >= MAX_TRIES
        walk = _Walk(line, around, assumptions)
        walk.go(roots)
        if not walk.disproved:
            break
    return walk.found()


def _settings(state: State) -> Iterator[Location]:
    return map(hidden, state.message.settings)


def first_versions(state: State, line: Lineage) -> dict[Location, Version]:
    """Versions of what the first steps read, no step before them had written, and a fresh runtime has. state: the
    result of the line.
    """
    found, changed = dict[Location, Version](), set[Location]()
    restored = _is_restored(line)
    unstored = _UNSTORED_STATES.difference(_settings(state))
    for record in line.steps[1:] if restored else line.steps:
        if record.trace is None:
            break
        for location, version in record.trace.reads.items():
            fresh = location in unstored or version == ABSENT or not restored
            if fresh and location not in changed:
                found.setdefault(location, version)
        if record.unknown:
            break
        changed.update(written(record))
    return found


def _is_restored(line: Lineage) -> bool:
    """Whether it begins in a restored state, and not in a fresh runtime."""
    return line.steps[:1] != () and line.steps[0].kind == "unrecorded"


class _Walk:
    """One walk. The next walk takes every step that this one takes, and assumes less."""

    def __init__(self, line: Lineage, around: RebuildContext, assumptions: _Assumptions) -> None:
        self._line, self._around, self._assumptions = line, around, assumptions
        self._wanted: dict[Location, Version | None] = {}
        """With the version that was read, None for the final one."""
        self._given: set[Location] = set()
        self._as_at_first: set[Location] = set()
        self._changed: set[Location] = set()
        """Locations changed by steps after the current one."""
        self._taken: list[StepRecord] = []
        self._everything = False
        self.disproved = False
        """Whether an assumption turned out to be wrong."""

    def go(self, roots: Collection[Location]) -> None:
        for location in roots:
            self._want(location, None)
        for record in reversed(self._line.steps):
            if not (self._wanted or self._everything):
                return
            if record.stays:
                self._pass(record)
        injected = self._around.injected
        if not injected.isdisjoint(self._wanted):
            # They may share objects: all of them must be as injected.
            self._forbid(self._given & injected)

    def found(self) -> tuple[list[StepRecord], frozenset[Location]]:
        """See `steps_for`."""
        taken = self._taken[::-1]
        self._check_beginning(taken)
        given = frozenset(self._given) - set(map(name, self._around.stored.hosts))  # clients give those
        return [each for each in taken if each.kind in ("cell", "deletion")], given

    def _pass(self, record: StepRecord) -> None:
        changes = set(written(record)) - not_drawn(record)
        self._changed |= changes
        if record.unknown and not self._assumptions.strict:
            self._assumptions.strict = self.disproved = True
        if self._everything or record.unknown or not changes.isdisjoint(self._wanted):
            self._take(record, changes)

    def _take(self, record: StepRecord, changes: set[Location]) -> None:
        check_repeatable(record, self._around.stored.hosts, reaches_out=self._around.reaches_out)
        self._taken.append(record)
        self._forbid(changes & (self._given | self._as_at_first))
        self._everything = self._everything or bool(record.unknown)
        trace = record.trace
        if trace is None:
            return
        for location in changes - trace.mutated:
            # Of a failed step, the names that it bound and the state of the process after it are known.
            if record.status == "ok" or kind_of(location) in ("hidden", "name"):
                _check_unchanged(location, self._wanted.pop(location, None), trace.writes[location])
        ignored = {ANYTHING, *not_drawn(record)}
        for location, version in trace.reads.items():
            if location not in ignored:
                self._want(location, version)

    def _want(self, location: Location, version: Version | None) -> None:
        """version: the one that was read; None for the final one."""
        if location not in self._assumptions.forbidden and not self._assumptions.strict:
            if location not in self._changed and location in self._around.stored.locations:
                self._given.add(location)
                return
            if version is not None and self._is_as_at_first(location, version):
                self._as_at_first.add(location)
                self._forbid({location} & self._given)
                return
        self._wanted.setdefault(location, version)
        self._forbid({location} & (self._given | self._as_at_first))

    def _is_as_at_first(self, location: Location, version: Version) -> bool:
        """Whether a fresh runtime has it."""
        if location in DRAWN or version.startswith("?") or self._around.first.get(location) != version:
            return False
        if kind_of(location) == "name":
            return version == ABSENT or key_of(location) in self._around.stored.hosts
        return kind_of(location) != "file" or version == ABSENT or key_of(location).startswith("/")

    def _forbid(self, locations: set[Location]) -> None:
        """Names that share objects are forbidden together: they are given together or not at all."""
        if locations:
            groups = set(map(self._around.sharing.group, locations))  # each once: all may be in one
            self._assumptions.forbidden.update(*groups, locations)
            self.disproved = True

    def _check_beginning(self, taken: list[StepRecord]) -> None:
        """Checks that what no step has written is in a fresh runtime."""
        wanted = {*self._wanted, *(map(name, self._line.begun) if self._everything else ())}
        for location in sorted(wanted):
            if location in self._around.injected:
                continue
            if self._wanted.get(location, location) is None and not self._everything:
                raise CannotRebuildError(f"no step is known to have made `{key_of(location)}`")
            if kind_of(location) == "name" and self._was_put_in(location):
                raise CannotRebuildError(
                    f"the value that `{key_of(location)}` had at the start is kept no more"
                )
            if kind_of(location) == "file" and location != TREE:
                self._check_file(location)
            elif location in DRAWN and not _is_seeded(taken, location):
                raise CannotRebuildError("random numbers were drawn that no step has seeded")

    def _was_put_in(self, location: Location) -> bool:
        """Whether a client injected it before the first step."""
        variable = key_of(location)
        if variable in self._around.stored.hosts or variable in STANDARD:
            return False
        return variable in self._line.begun or self._around.first.get(location, ABSENT) != ABSENT

    def _check_file(self, location: Location) -> None:
        if self._around.first.get(location, ABSENT) != ABSENT and not key_of(location).startswith("/"):
            raise CannotRebuildError(f"the file {key_of(location)} as it was at the start is kept no more")


def _check_unchanged(location: Location, found: Version | None, left: Version) -> None:
    """Raises CannotRebuildError where a state of the process differs from what the last step left."""
    known = found is not None and not found.startswith("?") and not left.startswith("?")
    if known and found != left and kind_of(location) == "hidden":
        raise CannotRebuildError(f"the state of {key_of(location)} was changed between two steps")


def _is_seeded(taken: list[StepRecord], location: Location) -> bool:
    readers = [
        each
        for each in taken
        if each.trace is not None and location in each.trace.reads.keys() - not_drawn(each)
    ]
    return not readers or is_seeded(readers[0])


_Group = frozenset[Location]


def rebuild_of(state: State, line: Lineage, *, reaches_out: bool, injected: Iterable[str] = ()) -> Rebuild:
    """line: the steps that led to the state. reaches_out: see `check_repeatable`. injected: see `RebuildContext`.

    Rebuilds as much as possible. Variables that share objects with a rebuilt one are rebuilt with it.
    """
    sharing = SharedObjects(line.steps, line.begun)
    around = RebuildContext(
        stored=RestoredState.of(state, line),
        injected=frozenset(map(name, injected)),
        sharing=sharing,
        first=first_versions(state, line),
        reaches_out=reaches_out,
    )
    groups = _groups(state, sharing)
    try:
        return _together(groups, line, around)
    except CannotRebuildError as error:
        if len(groups) == 1:
            return Rebuild(refused=_refused(groups[0], error))
    return _one_by_one(groups, line, around)


def _groups(state: State, sharing: SharedObjects) -> list[_Group]:
    """Groups of what is not to be had by value, each with what shares objects with it."""
    there = set(map(name, state.message.names)) - set(map(name, state.message.hosts))
    lost = map(name, sorted(state.names_to_rebuild()))
    return list(dict.fromkeys((sharing.group(each) | {each}) & there for each in lost if each in there))


def _one_by_one(groups: Sequence[_Group], line: Lineage, around: RebuildContext) -> Rebuild:
    done, refused = list[_Group](), dict[str, str]()
    for group in groups:
        try:
            steps_for([each for other in (*done, group) for each in other], line, around)
            done.append(group)
        except CannotRebuildError as error:
            refused |= _refused(group, error)
    found = _together(done, line, around)
    return Rebuild(names=found.names, steps=found.steps, given=found.given, refused=refused)


def _together(groups: Iterable[_Group], line: Lineage, around: RebuildContext) -> Rebuild:
    roots = sorted(frozenset[Location]().union(*groups))
    steps, given = steps_for(roots, line, around)
    return Rebuild(
        names=tuple(key_of(each) for each in roots),
        steps=tuple(record.number for record in steps),
        given=given,
    )


def _refused(group: _Group, error: CannotRebuildError) -> dict[str, str]:
    return dict.fromkeys(sorted(key_of(each) for each in group), str(error))
