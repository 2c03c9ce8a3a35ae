"""What each step of a line took from others, and who has written artifacts: read once, as the line gets longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cenote.harness.artifacts.artifact import Artifact
from cenote.harness.plan_contents import reads_anything, writes_anything
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, Location, StepTrace, Version

_UNTRACED: Final = StepTrace()
_NOTHING: Final[Mapping[Location, Version]] = {}


class ArtifactVersion(NamedTuple):
    """One content of an artifact. step: what wrote it, by whom, for which model call. version: equal for equals.

    A tuple: a long history has thousands, and each takes a third of the time of a dataclass.
    """

    step: int
    author: str
    cause: str
    version: Version


class Sightings:
    """Steps are told by their index in the line of those that stay.

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
        return found or _NOTHING

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
