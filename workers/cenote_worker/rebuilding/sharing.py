"""Which names share changeable objects at the end of a line of steps, as far as the records tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cenote_worker.history.step import StepRecord
from cenote_worker.trace import ABSENT, Location, kind_of, name


class Sharing:
    """Of the common names.

    Behind a step of which not everything is known, any two names that there were may share something: an object that
    nobody can look into may lead to either.
    """

    def __init__(self, line: Sequence[StepRecord], begun: Iterable[str]) -> None:
        """begun: names that there were before the first step."""
        self._groups = {each: frozenset((each,)) for each in map(name, begun)}
        for record in line:
            if record.stays:
                self._pass(record)

    def group(self, location: Location) -> frozenset[Location]:
        """The name and all that may share objects with it."""
        return self._groups.get(location, frozenset((location,)))

    def _pass(self, record: StepRecord) -> None:
        trace = record.trace
        if trace is not None:
            written = {each: version for each, version in trace.writes.items() if kind_of(each) == "name"}
            for each, version in written.items():
                if each not in trace.mutated or version == ABSENT:
                    self._leave(each)
            self._groups.update({each: frozenset((each,)) for each in written.keys() - self._groups.keys()})
            for each in [each for each, version in written.items() if version == ABSENT]:
                del self._groups[each]
            for group in trace.groups:
                self._join([each for each in group if each in self._groups])
        if record.unknown:
            self._join(list(self._groups))

    def _leave(self, location: Location) -> None:
        rest = self.group(location) - {location}
        self._groups.update(dict.fromkeys(rest, rest))
        self._groups[location] = frozenset((location,))

    def _join(self, members: Sequence[Location]) -> None:
        joined = frozenset[Location]().union(*map(self.group, members))
        self._groups.update(dict.fromkeys(joined, joined))
