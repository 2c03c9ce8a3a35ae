"""What was made from something that is different now: by the traces of a line, and by what was declared. Pure.

`TrackedArtifact` is an artifact as users see it: what it is made of, its versions, and why it is out of date.

What each step took from others, and who has written artifacts, is read once, as the line gets longer. A step is
late if it took an artifact as it was before that was changed. What follows from a late step is out of date too,
until something makes it that is not. Unknown means dependent: a step that may have read anything has read every
artifact, and whatever any step before it has left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cenote.harness.artifacts.declaration import Artifact, ArtifactKind, depending_last
from cenote.harness.planning.state_contents import reads_anything, writes_anything
from cenote_worker.execution.trace import ABSENT, LIBRARIES, Location, StepTrace, Version, key_of, kind_of
from cenote_worker.history.events import RanTest, SuiteOutcome
from cenote_worker.history.step import StepRecord

_UNTRACED: Final = StepTrace()
_NO_VERSIONS: Final[Mapping[Location, Version]] = {}


class ArtifactVersion(NamedTuple):
    """One content of an artifact. step: what wrote it, by whom, for which model call. version: equal for equals.

    A tuple: a long history has thousands, and each takes a third of the time of a dataclass.
    """

    step: int
    author: str
    cause: str
    version: Version


class Sightings:
    """Steps are named by their index in the line of those that stay.

    places: of artifacts, with their names. sources: of each step, those that it may have taken something from; None
    for any of them. read: the artifacts that it read, with their versions. wrote: the same of what it wrote, for
    those that did. writes: the steps that wrote each artifact, by name; versions: what they wrote. counting: those of
    them that count for who used it before: of a source all, of anything else those that made it without what was
    there. final: the version that each has now, as it was written or read last: a client's own change of a large file
    is known by reading only; nothing for one that no step wrote or read.
    """

    def __init__(self, artifacts: Mapping[str, Artifact]) -> None:
        self.line: list[StepRecord] = []
        self.places = {one.place: name for name, one in artifacts.items() if one.place is not None}
        self.sources: list[frozenset[int] | None] = []
        self.read: list[Mapping[Location, Version]] = []
        self.wrote: dict[int, Mapping[Location, Version]] = {}
        self.writes: dict[str, list[int]] = {name: [] for name in artifacts}
        self.versions: dict[str, list[ArtifactVersion]] = {name: [] for name in artifacts}
        self.counting: dict[str, list[int]] = {name: [] for name in artifacts}
        self.final: dict[str, Version] = {}
        self._sources = {one.place for one in artifacts.values() if one.is_source}
        self._there = set[Location]()
        self._writers: dict[Location, int] = {}
        self._blind = -1
        """The last step that may have written anything."""

    def grow(self, records: Iterable[StepRecord]) -> None:
        """The line goes on. One loop over what may be ten thousand steps: what most of them need is here."""
        places, writers = self.places, self._writers
        for record in records:
            if not record.stays:
                continue
            index, trace = len(self.line), record.trace or _UNTRACED
            doubtful = record.kind == "cell" and bool(record.unknown)
            self.line.append(record)
            self.sources.append(
                self._taken(trace) if not (doubtful and reads_anything(record.trace)) else None
            )
            self.read.append(self._artifacts(trace.reads))
            if made := {place: version for place, version in trace.writes.items() if place in places}:
                self.wrote[index] = made
                self._write(index, record, made)
            for place in trace.writes:
                writers[place] = index
            if doubtful and writes_anything(record.trace):
                self._blind = index

    def _taken(self, trace: StepTrace) -> frozenset[int]:
        writers, reads = self._writers, trace.reads
        sources = {writers[place] for place in reads if place in writers}
        if self._blind >= 0 and reads:
            sources.add(self._blind)
        return frozenset(sources)

    def _artifacts(self, reads: Mapping[Location, Version]) -> Mapping[Location, Version]:
        found = {place: reads[place] for place in reads if place in self.places}
        self.final.update({self.places[place]: version for place, version in found.items()})
        return found or _NO_VERSIONS

    def _write(self, index: int, record: StepRecord, made: Mapping[Location, Version]) -> None:
        read = record.trace.reads if record.trace is not None else ()
        for place, version in made.items():
            name = self.places[place]
            self.writes[name].append(index)
            self.versions[name].append(ArtifactVersion(record.number, record.author, record.cause, version))
            self.final[name] = version
            if place not in self._there or place in self._sources or place not in read:
                self.counting[name].append(index)
            (self._there.discard if version == ABSENT else self._there.add)(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """Why a step is out of date. artifact: what it took, or a step before it. late: which step took it as it was
    before the step `change`."""

    artifact: str
    change: int
    late: int

    def reason(self, number: int) -> str:
        """A sentence about the step with this number."""
        first = f"step {self.late} used `{self.artifact}` as it was before step {self.change}"
        return first if number == self.late else f"{first}, and step {number} depends on that"


_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class _Walk:
    """What is known on the way along the line."""

    versions: dict[Location, Version] = field(default_factory=dict)
    """Of artifacts."""
    used: frozenset[str] = _NOTHING
    """Artifacts that any step has used."""
    outdated: Outdated | None = None
    """Why the first step that is out of date is so."""


class Survey:
    """Of one line, and the artifacts that are watched over in it.

    writes, versions, final: see Sightings. feeding: of each, indices of steps that only read its text for a step
    after them that changes it: such an edit in two steps is one edit. late: artifacts that a step took too early,
    with the first change since, by the step's index. outdated: by index. uses: artifacts that a step depends on,
    directly or through others, by index.
    """

    def __init__(
        self, line: Iterable[StepRecord], artifacts: Mapping[str, Artifact], seen: Sightings | None = None
    ) -> None:
        """seen: what an earlier walk along the line has seen of these artifacts; by default it is walked now."""
        if seen is None:
            seen = Sightings(artifacts)
            seen.grow(line)
        self.artifacts = artifacts
        self._sightings = seen
        self.line, self._places = seen.line, seen.places
        self.writes, self.versions, self.final = seen.writes, seen.versions, seen.final
        self._makers = self._made()
        self.feeding = self._feeding()
        self._edits = {name: self._edited(name) for name in artifacts}
        self.late: dict[int, dict[str, int]] = {}
        self.outdated: dict[int, Outdated] = {}
        self.uses: dict[int, frozenset[str]] = {}
        self._judge()

    def maker(self, name: str) -> int | None:
        """Index of the step that wrote an artifact last."""
        writes = self.writes[name]
        return writes[-1] if writes else None

    def users(self, name: str) -> list[int]:
        """Steps that took an artifact too early, in their order."""
        return [index for index, late in self.late.items() if name in late]

    def changes(self, name: str, after: int) -> list[int]:
        """Steps that wrote an artifact after one, and that count for who used it before."""
        counting = self._sightings.counting[name]
        return counting[bisect_right(counting, after) :]

    # -- versions --

    def _made(self) -> dict[int, list[str]]:
        """What each step has made as it is now, of those that have made anything."""
        found = dict[int, list[str]]()
        for name, writes in self.writes.items():
            if writes:
                found.setdefault(writes[-1], []).append(name)
        return found

    def _feeding(self) -> dict[str, frozenset[int]]:
        # To read a function's name is to use it.
        edited = [one for one in self.artifacts.values() if one.is_source and one.is_file]
        takers, givers = self._exchanges() if edited else ({}, {})
        found = dict.fromkeys(self.artifacts, frozenset[int]())
        for artifact in edited:
            changes = set(self.writes[artifact.name])
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

    # -- the steps, from the first on --

    def _judge(self) -> None:
        """One loop over what may be ten thousand steps: what most of them need is here, and not in functions."""
        walk = _Walk()
        uses, outdated, makers, seen = self.uses, self.outdated, self._makers, self._sightings
        for index, (sources, read) in enumerate(zip(seen.sources, seen.read, strict=True)):
            taken = _NOTHING
            if read or sources is None or index in makers:
                walk.versions.update(read)
                taken = self._take(walk, index, walk.versions if sources is None else read)
            if outdated and index not in self.late and (first := self._first_outdated(walk, sources)):
                outdated[index] = first
            uses[index] = used = self._used(walk, sources, taken)
            if used is not walk.used and not used <= walk.used:
                walk.used |= used
            walk.outdated = walk.outdated or outdated.get(index)
            if index in seen.wrote:
                walk.versions.update(seen.wrote[index])

    def _take(self, walk: _Walk, index: int, seen: Mapping[Location, Version]) -> frozenset[str]:
        """Artifacts that a step used. seen: those that it may have read. An edit of a source is no use of it."""
        places, edits, final = self._places, self._edits, self.final
        taken = {places[each]: seen[each] for each in seen if index not in edits[places[each]]}
        for name in self._makers.get(index, ()):
            taken |= self._declared(walk, name)
        late = {}
        for name, was in taken.items():
            if was != final.get(name) and (change := self._changed(name, index)):
                late[name] = change
        if late:
            self.late[index] = late
            name, number = min(late), self.line[index].number
            self.outdated[index] = Outdated(artifact=name, change=late[name], late=number)
        return frozenset(taken)

    def _used(self, walk: _Walk, sources: frozenset[int] | None, taken: frozenset[str]) -> frozenset[str]:
        """Sets that are equal stay one: most steps of a line add nothing."""
        used = walk.used if sources is None else _NOTHING
        for source in sources or ():
            theirs = self.uses[source]
            if theirs is not used and not theirs <= used:
                used = used | theirs if used else theirs
        return used if taken <= used else used | taken

    def _first_outdated(self, walk: _Walk, sources: frozenset[int] | None) -> Outdated | None:
        if sources is None:
            return walk.outdated
        late = sources & self.outdated.keys()
        return self.outdated[min(late)] if late else None

    def _edited(self, name: str) -> frozenset[int]:
        """Steps that edit a source, or read its text for that."""
        written = self.writes[name] if self.artifacts[name].is_source else ()
        return self.feeding[name].union(written)

    def _declared(self, walk: _Walk, name: str) -> dict[str, Version]:
        found = {}
        for dependency in self.artifacts[name].depends_on:
            place = self.artifacts[dependency].place
            if place is not None:
                found[dependency] = walk.versions.get(place, ABSENT)
        return found

    def _changed(self, name: str, index: int) -> int:
        """The first step after a given one that has changed an artifact; 0 for none."""
        counting = self._sightings.counting[name]
        if not counting or counting[-1] <= index:
            return 0
        return self.line[counting[bisect_right(counting, index)]].number


def _reads_text(record: StepRecord, place: Location) -> bool:
    """Whether the step reads a file, and imports nothing of the user's."""
    trace = record.trace
    if trace is None or record.kind != "cell" or reads_anything(trace) or place not in trace.reads:
        return False
    touched = {*trace.reads, *trace.writes} - {LIBRARIES}
    return not any(kind_of(each) == "module" for each in touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedArtifact:
    """An artifact on the line to the head.

    depends_on: as declared. uses: other artifacts that were seen to be used in making it, directly or through steps
    between; those that tests ran. versions: oldest first. stale: why it is out of date, a sentence each; `build`
    brings it up to date. tests: of a suite, as they came out last.
    """

    name: str
    kind: ArtifactKind
    depends_on: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    versions: tuple[ArtifactVersion, ...] = ()
    stale: tuple[str, ...] = ()
    tests: tuple[RanTest, ...] = ()

    @property
    def step(self) -> int:
        """The step that has made it as it is; 0 where none of the line has."""
        return self.versions[-1].step if self.versions else 0


def tracked(survey: Survey, suites: Mapping[str, SuiteOutcome]) -> tuple[TrackedArtifact, ...]:
    """All of them, in the order of their names."""
    stale = _stale(survey, suites)
    return tuple(
        _tracked(survey, artifact, stale[name], suites.get(name))
        for name, artifact in sorted(survey.artifacts.items())
    )


def _tracked(
    survey: Survey, artifact: Artifact, stale: tuple[str, ...], suite: SuiteOutcome | None
) -> TrackedArtifact:
    maker = survey.maker(artifact.name)
    seen = survey.uses[maker] if maker is not None else frozenset[str]()
    tested = frozenset(suite.units) if suite is not None and artifact.kind == "tests" else frozenset[str]()
    return TrackedArtifact(
        name=artifact.name,
        kind=artifact.kind,
        depends_on=artifact.depends_on,
        uses=tuple(sorted((seen | tested) - {artifact.name})),
        versions=tuple(survey.versions[artifact.name]),
        stale=stale,
        tests=suite.tests if suite is not None and artifact.kind == "tests" else (),
    )


def _reasons(survey: Survey, name: str, suites: Mapping[str, SuiteOutcome]) -> Iterator[str]:
    """Of an artifact by itself."""
    artifact, maker = survey.artifacts[name], survey.maker(name)
    if maker is not None and (outdated := survey.outdated.get(maker)):
        yield outdated.reason(survey.line[maker].number)
    if artifact.kind == "module" and (
        loaders := [each for each in survey.users(name) if _reads(survey, each, name)]
    ):
        step, change = survey.line[loaders[0]].number, survey.late[loaders[0]][name]
        yield f"step {step} has loaded it as it was before step {change}"
    if artifact.kind == "tests":
        yield from _untested(survey, suites.get(name))


def _reads(survey: Survey, index: int, name: str) -> bool:
    """Whether the step itself has read it, and does not only depend on it by declaration."""
    trace = survey.line[index].trace
    return trace is None or survey.artifacts[name].place in trace.reads


def _untested(survey: Survey, suite: SuiteOutcome | None) -> Iterator[str]:
    if suite is None:
        yield "its tests have not run"
        return
    for unit, version in sorted(suite.units.items()):
        if unit in survey.artifacts and survey.final.get(unit, version) != version:
            yield f"`{unit}` is different since its tests ran"
    if failed := [test.name for test in suite.tests if test.outcome != "passed"]:
        yield f"{', '.join(failed)} did not pass"


def _stale(survey: Survey, suites: Mapping[str, SuiteOutcome]) -> dict[str, tuple[str, ...]]:
    """Why each is out of date. What depends on something out of date is so too."""
    found = dict[str, tuple[str, ...]]()
    for name in depending_last(survey.artifacts):
        depends_on = survey.artifacts[name].depends_on
        theirs = [f"`{each}`, which it depends on, is out of date" for each in depends_on if found[each]]
        found[name] = (*_reasons(survey, name, suites), *theirs)
    return found


def units_of(survey: Survey, tests: tuple[RanTest, ...], suite: str) -> dict[str, Version]:
    """The artifacts that tests have used, the suite's own file among them, with their versions now."""
    places = {one.place: name for name, one in survey.artifacts.items() if one.place is not None}
    used = {_place(item) for test in tests for item in test.used}
    names = {places[place] for place in used if place in places} | ({suite} & set(places.values()))
    return {name: survey.final[name] for name in sorted(names) if name in survey.final}


def _place(item: str) -> Location:
    """Where what a test used belongs: `code:PATH:NAME` to the file."""
    location = Location(item)
    if kind_of(location) == "code":
        return Location(f"file:{key_of(location).rpartition(':')[0]}")
    return location
