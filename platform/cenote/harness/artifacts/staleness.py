"""What was made from something that is different now: by the traces of a line, and by what was declared. Pure.

A step is late if it took an artifact as it was before that was changed. What follows from a late step is out of date
too, until something makes it that is not. Unknown means dependent: a step that may have read anything has read every
artifact, and whatever any step before it has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
        self.writes = {name: list(self._versions_of(one)) for name, one in artifacts.items()}
        self.final = self._final()
        takers = self._takers()
        self.feeding = {name: self._feeding(one, takers) for name, one in artifacts.items()}
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
        source = self.artifacts[name].is_source
        return [write for write in self.writes[name] if write.index > after and (source or write.anew)]

    # -- versions --

    def _versions_of(self, artifact: Artifact) -> Iterable[Write]:
        place, seen = artifact.place, False
        for index, record in enumerate(self.line):
            trace = record.trace
            if trace is not None and place is not None and place in trace.writes:
                anew = not seen or place not in trace.reads
                yield Write(index=index, number=record.number, version=trace.writes[place], anew=anew)
                seen = trace.writes[place] != ABSENT

    def _final(self) -> dict[str, Version]:
        """What was seen last, as it was written or as it was read: a client's own change is known by reading only."""
        found: dict[str, Version] = {}
        for record in self.line:
            trace = record.trace
            for place, name in self._places.items():
                if trace is not None and place in trace.writes:
                    found[name] = trace.writes[place]
                elif trace is not None and place in trace.reads:
                    found[name] = trace.reads[place]
        return found

    def _feeding(self, artifact: Artifact, takers_of: Mapping[int, set[int]]) -> frozenset[int]:
        if not (artifact.is_source and artifact.is_file):  # to read a function's name is to use it
            return frozenset()
        changes = {write.index for write in self.writes[artifact.name]}
        makers = {self.maker(name) for name in self.writes}
        return frozenset(
            index
            for index, takers in takers_of.items()
            if takers <= changes
            and index not in makers | changes
            and artifact.place is not None
            and _reads_text(self.line[index], artifact.place)
        )

    def _takers(self) -> dict[int, set[int]]:
        """Of each step, those that take something from it, if any do."""
        found, writers = dict[int, set[int]](), dict[Location, int]()
        for index, record in enumerate(self.line):
            trace = record.trace
            if trace is not None:
                for each in trace.reads:
                    if each in writers:
                        found.setdefault(writers[each], set()).add(index)
                writers |= dict.fromkeys(trace.writes, index)
        return found

    # -- one step --

    def _judge(self, walk: _Walk, index: int, record: StepRecord) -> None:
        taken = self._taken(walk, index, record)
        late = {name: change for name, was in taken.items() if (change := self._changed(name, was, index))}
        if late:
            self.late[index] = late
            name = min(late)
            self.outdated[index] = Outdated(artifact=name, change=late[name], late=record.number)
        sources = self._sources(walk, record)
        if not late:
            found = [self.outdated[source] for source in sorted(sources) if source in self.outdated]
            if found:
                self.outdated[index] = found[0]
        through = (self.uses[source] for source in sources)
        self.uses[index] = frozenset(taken).union(*through)

    def _taken(self, walk: _Walk, index: int, record: StepRecord) -> dict[str, Version]:
        """Artifacts that a step used, with the versions that they had then. An edit of a source is no use of it."""
        reads = record.trace.reads if record.trace is not None else {}
        taken = {}
        for place, name in self._places.items():
            source = self.artifacts[name].is_source
            edited = index in self.feeding[name] or (
                source and any(write.index == index for write in self.writes[name])
            )
            if place in reads and not edited:
                taken[name] = reads[place]
            elif (
                record.kind == "cell"
                and reads_anything(record.trace)
                and not edited
                and place in walk.versions
            ):
                taken[name] = walk.versions[place]
        for name in self.writes:
            if self.maker(name) == index:
                taken |= self._declared(walk, name)
        return taken

    def _declared(self, walk: _Walk, name: str) -> dict[str, Version]:
        found = {}
        for dependency in self.artifacts[name].depends_on:
            place = self.artifacts[dependency].place
            if place is not None:
                found[dependency] = walk.versions.get(place, ABSENT)
        return found

    def _changed(self, name: str, was: Version, index: int) -> int:
        """The first step that has changed an artifact since; 0 if it is what it was."""
        changes = self.changes(name, index)
        return changes[0].number if changes and self.final.get(name) != was else 0

    def _sources(self, walk: _Walk, record: StepRecord) -> set[int]:
        """Steps that a step takes something from."""
        if record.kind == "cell" and reads_anything(record.trace):
            return set(self.uses)
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
