"""Who has written artifacts along a line, and what is there now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cenote.harness.artifacts.artifact import Artifact
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, Location, Version


class Sightings:
    """Steps are told by their index in the line.

    places: of artifacts, with their names. wrote: which of them each step wrote, of those that did. writes: the steps
    that wrote each artifact, by name. counting: those of them that count for who used it before: of a source all, of
    anything else those that made it without what was there. final: the version that each has now; nothing for one
    that no step wrote or read.
    """

    def __init__(self, line: Sequence[StepRecord], artifacts: Mapping[str, Artifact]) -> None:
        self.places = {one.place: name for name, one in artifacts.items() if one.place is not None}
        self.wrote: dict[int, list[Location]] = {}
        self.writes: dict[str, list[int]] = {name: [] for name in artifacts}
        self.counting: dict[str, list[int]] = {name: [] for name in artifacts}
        sources = {one.place for one in artifacts.values() if one.is_source}
        there = set[Location]()
        places, writes, counting = self.places, self.writes, self.counting
        for index, record in enumerate(line):
            trace = record.trace
            if trace is None or not (made := [place for place in trace.writes if place in places]):
                continue
            self.wrote[index] = made
            for place in made:
                name = places[place]
                writes[name].append(index)
                if place not in there or place in sources or place not in trace.reads:
                    counting[name].append(index)
                (there.discard if trace.writes[place] == ABSENT else there.add)(place)
        self.final = self._final(line)

    def _final(self, line: Sequence[StepRecord]) -> dict[str, Version]:
        """As they were written or read last: a client's own change of a large file is known by reading only."""
        found, wanted = dict[str, Version](), set(self.places)
        for record in reversed(line):
            for seen in (record.trace.writes, record.trace.reads) if record.trace is not None else ():
                if last := wanted & seen.keys():
                    found.update((self.places[place], seen[place]) for place in last)
                    wanted -= last
            if not wanted:
                break
        return found
