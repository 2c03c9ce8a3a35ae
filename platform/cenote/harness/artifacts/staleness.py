"""What was made from something that is different now: by the traces of a line, and by what was declared. Pure.

A step is late if it took an artifact as it was before that was changed. What follows from a late step is out of date
too, until something makes it that is not. Unknown means dependent: a step that may have read anything has read every
artifact, and whatever any step before it has left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from cenote.harness.artifacts.artifact import Artifact
from cenote.harness.plan_contents import reads_anything, writes_anything
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, Location, Version, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One version of an artifact. index: of its step among those that stay. anew: made without what was there."""

    index: int
    number: int
    version: Version
    anew: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """Why a step is out of date. artifact: what it took, or a step before it. late: which step took it as it was
    before the step `change`."""

    artifact: str
    change: int
    late: int

    def reason(self, number: int) -> str:
        """Of the step with this number, in a sentence."""
        first = f"step {self.late} used `{self.artifact}` as it was before step {self.change}"
        return first if number == self.late else f"{first}, and step {number} depends on that"


@dataclass(slots=True)
class _Walk:
    """What is known on the way along the line."""

    writers: dict[Location, int] = field(default_factory=dict)
    versions: dict[Location, Version] = field(default_factory=dict)
    blind: int = -1
    """The last step that may have written anything."""
    used: frozenset[str] = frozenset()
    """Artifacts that any step has used."""
    outdated: Outdated | None = None
    """Why the first step that is out of date is so."""


class Survey:
    """Of one line, and the artifacts that are watched over in it.

    writes: the versions of each artifact, oldest first. final: what each has now; nothing for one that no step wrote
    or read. feeding: of each, indices of steps that only read its text for a step behind them that changes it: such
    an edit in two steps is one edit. late: artifacts that a step took too early, with the first change since, by the
    step's index. outdated: by index. uses: artifacts that a step depends on, directly or through others, by index.
    """

    def __init__(self, line: Sequence[StepRecord], artifacts: Mapping[str, Artifact]) -> None:
        self.line = [record for record in line if record.stays]
        self.artifacts = artifacts
        self._places = {one.place: name for name, one in artifacts.items() if one.place is not None}
        self.writes = self._writes()
        self._counting = {name: self._counted(name) for name in artifacts}
        self._writing = {name: {write.index for write in writes} for name, writes in self.writes.items()}
        self._makers = self._made()
        self.final = self._final()
        self.feeding = self._feeding()
        self.late: dict[int, dict[str, int]] = {}
        self.outdated: dict[int, Outdated] = {}
        self.uses: dict[int, frozenset[str]] = {}
        walk = _Walk()
        for index, record in enumerate(self.line):
            self._judge(walk, index, record)
            _pass(walk, index, record)

    def maker(self, name: str) -> int | None:
        """Index of the step that wrote an artifact last."""
        writes = self.writes[name]
        return writes[-1].index if writes else None

    def users(self, name: str) -> list[int]:
        """Steps that took an artifact too early, in their order."""
        return [index for index, late in self.late.items() if name in late]

    def changes(self, name: str, after: int) -> list[Write]:
        """Versions of an artifact that came after a step, and that count for who used it before."""
        counting = self._counting[name]
        return counting[bisect_right(counting, after, key=lambda write: write.index) :]

    # -- versions --

    def _writes(self) -> dict[str, list[Write]]:
        found: dict[str, list[Write]] = {name: [] for name in self.artifacts}
        for index, record in enumerate(self.line):
            trace = record.trace
            for place, version in trace.writes.items() if trace is not None else ():
                if trace is not None and (name := self._places.get(place)) is not None:
                    there = bool(found[name]) and found[name][-1].version != ABSENT
                    anew = not there or place not in trace.reads
                    found[name].append(Write(index=index, number=record.number, version=version, anew=anew))
        return found

    def _counted(self, name: str) -> list[Write]:
        source = self.artifacts[name].is_source
        return [write for write in self.writes[name] if source or write.anew]

    def _made(self) -> dict[int, list[str]]:
        """What each step has made as it is now, of those that have made anything."""
        found = dict[int, list[str]]()
        for name, writes in self.writes.items():
            if writes:
                found.setdefault(writes[-1].index, []).append(name)
        return found

    def _final(self) -> dict[str, Version]:
        """What was seen last, as it was written or as it was read: a client's own change is known by reading only."""
        found: dict[str, Version] = {}
        for record in self.line:
            if record.trace is not None:
                for place, version in chain(record.trace.reads.items(), record.trace.writes.items()):
                    if place in self._places:
                        found[self._places[place]] = version
        return found

    def _feeding(self) -> dict[str, frozenset[int]]:
        # To read a function's name is to use it.
        edited = [one for one in self.artifacts.values() if one.is_source and one.is_file]
        takers, givers = self._exchanges() if edited else ({}, {})
        found = dict.fromkeys(self.artifacts, frozenset[int]())
        for artifact in edited:
            changes = self._writing[artifact.name]
            fed = {giver for change in changes for giver in givers.get(change, ())}
            found[artifact.name] = frozenset(
                index
                for index in fed - changes - self._makers.keys()
                if takers[index] <= changes
                and artifact.place is not None
                and _reads_text(self.line[index], artifact.place)
            )
        return found

    def _exchanges(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Of each step, those that take something from it, and those that it takes something from, if any."""
        takers, givers = dict[int, set[int]](), dict[int, set[int]]()
        writers = dict[Location, int]()
        for index, record in enumerate(self.line):
            trace = record.trace
            if trace is not None:
                for each in trace.reads:
                    if each in writers:
                        takers.setdefault(writers[each], set()).add(index)
                        givers.setdefault(index, set()).add(writers[each])
                writers |= dict.fromkeys(trace.writes, index)
        return takers, givers

    # -- one step --

    def _judge(self, walk: _Walk, index: int, record: StepRecord) -> None:
        taken = self._taken(walk, index, record)
        late = {name: change for name, was in taken.items() if (change := self._changed(name, was, index))}
        if late:
            self.late[index] = late
            name = min(late)
            self.outdated[index] = Outdated(artifact=name, change=late[name], late=record.number)
        sources = self._sources(walk, record)
        if not late and (found := self._first_outdated(walk, sources)):
            self.outdated[index] = found
        self.uses[index] = used = self._used(walk, sources, frozenset(taken))
        if not used <= walk.used:
            walk.used |= used
        walk.outdated = walk.outdated or self.outdated.get(index)

    def _used(self, walk: _Walk, sources: set[int] | None, taken: frozenset[str]) -> frozenset[str]:
        """Sets that are equal stay one: most steps of a line add nothing."""
        used = walk.used if sources is None else frozenset[str]()
        for source in sources or ():
            theirs = self.uses[source]
            if theirs is not used and not theirs <= used:
                used = used | theirs if used else theirs
        return used if taken <= used else used | taken

    def _first_outdated(self, walk: _Walk, sources: set[int] | None) -> Outdated | None:
        if sources is None or not self.outdated:
            return walk.outdated
        first = min((source for source in sources if source in self.outdated), default=None)
        return self.outdated[first] if first is not None else None

    def _taken(self, walk: _Walk, index: int, record: StepRecord) -> dict[str, Version]:
        """Artifacts that a step used, with the versions that they had then. An edit of a source is no use of it."""
        reads = record.trace.reads if record.trace is not None else {}
        seen = {place: reads[place] for place in reads if place in self._places}
        if record.kind == "cell" and reads_anything(record.trace):
            known = {place: walk.versions[place] for place in self._places if place in walk.versions}
            seen = known | seen
        names = {self._places[place]: version for place, version in seen.items()}
        taken = {name: version for name, version in names.items() if not self._edits(index, name)}
        for name in self._makers.get(index, ()):
            taken |= self._declared(walk, name)
        return taken

    def _edits(self, index: int, name: str) -> bool:
        written = self.artifacts[name].is_source and index in self._writing[name]
        return written or index in self.feeding[name]

    def _declared(self, walk: _Walk, name: str) -> dict[str, Version]:
        found = {}
        for dependency in self.artifacts[name].depends_on:
            place = self.artifacts[dependency].place
            if place is not None:
                found[dependency] = walk.versions.get(place, ABSENT)
        return found

    def _changed(self, name: str, was: Version, index: int) -> int:
        """The first step that has changed an artifact since; 0 if it is what it was."""
        counting = self._counting[name]
        if not counting or counting[-1].index <= index or self.final.get(name) == was:
            return 0
        return counting[bisect_right(counting, index, key=lambda write: write.index)].number

    def _sources(self, walk: _Walk, record: StepRecord) -> set[int] | None:
        """Steps that a step takes something from; None for all before it."""
        if record.kind == "cell" and reads_anything(record.trace):
            return None
        reads = record.trace.reads if record.trace is not None else {}
        found = {walk.writers[place] for place in reads if place in walk.writers}
        if walk.blind >= 0 and reads:
            found.add(walk.blind)
        return found


def _reads_text(record: StepRecord, place: Location) -> bool:
    """Whether the step reads a file, and imports nothing of the user's."""
    trace = record.trace
    if trace is None or record.kind != "cell" or reads_anything(trace) or place not in trace.reads:
        return False
    return not any(kind_of(each) == "module" for each in (*trace.reads, *trace.writes))


def _pass(walk: _Walk, index: int, record: StepRecord) -> None:
    trace = record.trace
    if trace is not None:
        walk.versions.update(trace.reads)
        walk.versions.update(trace.writes)
        walk.writers.update(dict.fromkeys(trace.writes, index))
    if record.kind == "cell" and writes_anything(trace):
        walk.blind = index
