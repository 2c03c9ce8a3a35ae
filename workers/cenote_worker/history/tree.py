"""The steps of a runtime as a tree, as in git, and which step each of them took what it read from. Pure.

Nothing is overwritten: the head moves. Dependencies are worked out as steps are added, so that questions need no
search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from cenote_worker.execution.trace import ANYTHING, Location, key_of, kind_of, name
from cenote_worker.history.step import START, StepRecord


class StepTree:
    """Steps by number, in the order in which they ended. A path from the start to a step is called a line.

    Numbers grow along no line in particular: a step of an author that waits is numbered before it runs.
    """

    def __init__(self) -> None:
        self._records: dict[int, StepRecord] = {}
        self._depths: dict[int, int] = {START: 0}
        self.head = START
        """The step whose state is live."""

    def add(self, record: StepRecord) -> None:
        """Raises ValueError for a number that is taken, or a parent that is not there."""
        if record.number in self._depths or record.number < START:
            raise ValueError(f"there is a step {record.number} already")
        if record.parent not in self._depths:
            raise ValueError(f"step {record.number} follows step {record.parent}, which is not there")
        self._records[record.number] = record
        self._depths[record.number] = self._depths[record.parent] + 1
        if record.stays:
            self.head = record.number
        elif record.status == "lost":
            self.head = START

    def replace(self, record: StepRecord) -> None:
        """The same step, with less of its results."""
        self._records[record.number] = record

    def move(self, head: int) -> None:
        """Raises KeyError for a step that is not there."""
        self._depths[head]
        self.head = head

    def get(self, number: int) -> StepRecord:
        """Raises KeyError for a step that is not there, the start among them."""
        return self._records[number]

    def first(self, number: int) -> int:
        """The step that it stands for in the end, through whatever patches; itself where it stands for none."""
        while number in self._records and (origin := self._records[number].origin):
            number = origin
        return number

    def __contains__(self, number: int) -> bool:
        return number in self._depths

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[StepRecord]:
        """In the order in which they ended."""
        return iter(list(self._records.values()))

    @property
    def last(self) -> int:
        """The highest number; START when there is no step."""
        return max(self._records, default=START)

    def depth(self, number: int) -> int:
        """Steps of the line to this one, itself included."""
        return self._depths[number]

    def line(self, end: int) -> list[StepRecord]:
        """From the first step to this one; empty for the start. Raises KeyError."""
        return list(self.back(end))[::-1]

    def back(self, end: int) -> Iterator[StepRecord]:
        """The same from its end, for those who need not go all the way. Raises KeyError."""
        self._depths[end]
        while end != START:
            record = self._records[end]
            yield record
            end = record.parent

    def ancestor(self, one: int, other: int) -> int:
        """The last step that the lines of two steps share; START when it is the start alone."""
        while one != other:
            if self._depths[one] >= self._depths[other]:
                one = self._records[one].parent
            else:
                other = self._records[other].parent
        return one

    def between(self, ancestor: int, end: int) -> list[StepRecord]:
        """The line from behind an ancestor to a step."""
        found: list[StepRecord] = []
        while end != ancestor:
            record = self._records[end]
            found.append(record)
            end = record.parent
        return found[::-1]


class DependencyLock(Protocol):
    """A lock."""

    def acquire(self, blocking: bool = ...) -> bool: ...

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """seen: the steps that wrote what this one read last, by location. shadow: the last step before it of which not
    everything is known, START for none: it may have written what `seen` has from earlier steps, or what it lacks.
    A step that is known to have read nothing has none.
    """

    seen: Mapping[Location, int] = field(default_factory=lambda: MappingProxyType({}))
    shadow: int = START


class Dependencies:
    """Of a tree. Locations are those of `located`. Whoever adds steps, one at a time, waits for nobody."""

    def __init__(self, tree: StepTree, turn: DependencyLock) -> None:
        """turn: held by whoever works out what waits."""
        self._tree = tree
        self._turn = turn
        self._waiting: deque[StepRecord] = deque()
        """In their order."""
        self._inputs: dict[int, Inputs] = {}
        self._at = START
        self._writers: dict[Location, int] = {}
        """Of the line to the step `_at`: who wrote each location last."""
        self._shadow = START

    def add(self, record: StepRecord) -> None:
        """A step that the tree has got."""
        self._waiting.append(record)

    def catch_up(self) -> None:
        """What waits, as far as it takes no walk. Waits for nobody: who has the turn works it out as well."""
        if self._waiting and self._turn.acquire(blocking=False):
            try:
                while self._waiting and self._waiting[0].parent == self._at:
                    self._add(self._waiting.popleft())
            finally:
                self._turn.release()

    def inputs(self, step: int) -> Inputs:
        self._turn.acquire()
        try:
            while self._waiting:
                self._add(self._waiting.popleft())
        finally:
            self._turn.release()
        return self._inputs[step]

    def _add(self, record: StepRecord) -> None:
        if record.parent != self._at:
            self._begin_at(record.parent)
        shadow = self._shadow if record.unknown or looked_at(record) else START
        self._inputs[record.number] = Inputs(seen=self._sources(record), shadow=shadow)
        if record.stays:
            self._pass(record)

    def _sources(self, record: StepRecord) -> dict[Location, int]:
        writers, keys = self._writers, looked_at(record)
        if record.private:
            keys = [located(record, location) for location in keys]
        return {key: writers[key] for key in keys if key in writers}

    def _begin_at(self, step: int) -> None:
        self._at, self._writers, self._shadow = START, {}, START
        for record in self._tree.line(step):
            self._pass(record)

    def _pass(self, record: StepRecord) -> None:
        self._at = record.number
        for location in written(record):
            self._writers[location] = record.number
        if record.unknown:
            self._shadow = record.number


def located(record: StepRecord, location: Location) -> Location:
    """The location, with the author where the step's names are the author's own."""
    if record.private and kind_of(location) == "name":
        return name(f"{record.author}/{key_of(location)}")
    return location


def looked_at(record: StepRecord) -> Collection[Location]:
    """What a step is known to have read, as it names it itself.

    What it has changed in place too: by another name, it need not have read that one.
    """
    if record.trace is None:
        return ()
    reads, mutated = record.trace.reads.keys(), record.trace.mutated
    return reads if mutated <= reads else reads | mutated


def changed(record: StepRecord) -> frozenset[Location]:
    """Names whose objects a step is known to have changed in place."""
    return frozenset(located(record, each) for each in record.trace.mutated) if record.trace else frozenset()


def written(record: StepRecord) -> Iterable[Location]:
    """What a step is known to have written."""
    if record.trace is None:
        return ()
    if not record.private:  # thousands of times in some questions
        return [location for location in record.trace.writes if location != ANYTHING]
    return [located(record, location) for location in record.trace.writes if location != ANYTHING]
