"""Which names share changeable objects at the end of a line of steps, as far as the records tell. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, BLIND, Location, StepTrace, kind_of, name


class Sharing:
    """Of the common names.

    Behind a step of which not everything is known, any two names that there were may share something: an object that
    nobody can look into may lead to either.
    """

    def __init__(self, line: Sequence[StepRecord], begun: Iterable[str]) -> None:
        """begun: names that there were before the first step."""
        walk = _Walk(map(name, begun))
        for record in line:
            if record.stays:
                walk.go_on(record)
        self._groups = walk.groups()

    def group(self, location: Location) -> frozenset[Location]:
        """The name and all that may share objects with it."""
        return self._groups.get(location, frozenset((location,)))


def _held_unseen(trace: StepTrace) -> Iterator[Collection[Location]]:
    """What does not tell what it holds may hold of anything that its step had."""
    if any(reason.endswith(BLIND) for reason in trace.unportable.values()):
        yield {each for each in (*trace.reads, *trace.writes) if kind_of(each) == "name"}


class _Walk:
    """Sets are changed in place: a jail may tell of thousands of names in one, and of thousands that leave it."""

    def __init__(self, begun: Iterable[Location]) -> None:
        self._crowd: set[Location] = set()
        """Any two of which may share something."""
        self._apart = {each: {each} for each in begun}
        """Of all other names, the set that each is in."""

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
        """Smaller sets go into larger ones, and all into the crowd."""
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
