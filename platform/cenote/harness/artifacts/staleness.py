"""What was made from something that is different now: by the traces of a line, and by what was declared. Pure.

A step is late if it took an artifact as it was before that was changed. What follows from a late step is out of date
too, until something makes it that is not. Unknown means dependent: a step that may have read anything has read every
artifact, and whatever any step before it has left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cenote.harness.artifacts.artifact import Artifact
from cenote.harness.artifacts.sightings import Sightings
from cenote.harness.plan_contents import reads_anything
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, LIBRARIES, Location, Version, kind_of


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
    behind them that changes it: such an edit in two steps is one edit. late: artifacts that a step took too early,
    with the first change since, by the step's index. outdated: by index. uses: artifacts that a step depends on,
    directly or through others, by index.
    """

    def __init__(
        self, line: Iterable[StepRecord], artifacts: Mapping[str, Artifact], seen: Sightings | None = None
    ) -> None:
        """seen: what somebody who has gone along the line with these artifacts has seen there."""
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
        """The first step that has changed an artifact behind one; 0 for none."""
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
