"""The steps of a runtime as a tree, as in git, and for each step the steps that wrote what it read. Pure.

Nothing is overwritten: the head moves. Dependencies are computed as steps are added, so that queries need no search.
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

    Numbers need not grow along a line: a waiting author's step is numbered before it runs.
    """

    def __init__(self) -> None:
        self._records: dict[int, StepRecord] = {}
        self._depths: dict[int, int] = {START: 0}
        self.head = START
        """The step whose state is live."""

    def add(self, record: StepRecord) -> None:
        """Raises ValueError for a number that is taken, or an unknown parent."""
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
        """Replaces a step by the same step with fewer results."""
        self._records[record.number] = record

    def move(self, head: int) -> None:
        """Moves the head. Raises KeyError for an unknown step."""
        self._depths[head]
        self.head = head

    def get(self, number: int) -> StepRecord:
        """Raises KeyError for an unknown step, and for the start."""
        return self._records[number]

    def first(self, number: int) -> int:
        """The step that it replaces in the end, through any number of patches; itself where it replaces none."""
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
        """The same in reverse, lazily, for callers that need only the end of it. Raises KeyError."""
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
        """The line from after an ancestor to a step."""
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
    """seen: by location read, the step that wrote it last. shadow: the last earlier step with an incomplete trace,
    START for none: it may have written what `seen` has from steps before it, or what `seen` lacks.
    A step that is known to have read nothing has no shadow.
    """

    seen: Mapping[Location, int] = field(default_factory=lambda: MappingProxyType({}))
    shadow: int = START


class Dependencies:
    """Dependencies in a tree. Locations are those of `located`. `add` is for one thread at a time; it never waits."""

    def __init__(self, tree: StepTree, turn: DependencyLock) -> None:
        """turn: held by the thread that processes the waiting steps."""
        self._tree = tree
        self._turn = turn
        self._waiting: deque[StepRecord] = deque()
        """Steps not processed yet, in order."""
        self._inputs: dict[int, Inputs] = {}
        self._at = START
        self._writers: dict[Location, int] = {}
        """On the line to the step `_at`: the last step that wrote each location."""
        self._shadow = START

    def add(self, record: StepRecord) -> None:
        """Adds a step that the tree already has."""
        self._waiting.append(record)

    def catch_up(self) -> None:
        """Processes waiting steps that need no walk. Never waits: a thread that has the turn processes them."""
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
    """The location, with the author if the step's names are private."""
    if record.private and kind_of(location) == "name":
        return name(f"{record.author}/{key_of(location)}")
    return location


def looked_at(record: StepRecord) -> Collection[Location]:
    """The locations that a step is known to have read, in its own names.

    Includes names changed in place: a step may change an object by another name without reading this one.
    """
    if record.trace is None:
        return ()
    reads, mutated = record.trace.reads.keys(), record.trace.mutated
    return reads if mutated <= reads else reads | mutated


def changed(record: StepRecord) -> frozenset[Location]:
    """Names whose objects a step is known to have changed in place."""
    if record.trace is None:
        return frozenset()
    if not record.private:  # thousands of times in some queries
        return record.trace.mutated
    return frozenset(located(record, each) for each in record.trace.mutated)


def written(record: StepRecord) -> Iterable[Location]:
    """The locations that a step is known to have written."""
    if record.trace is None:
        return ()
    if not record.private:  # thousands of times in some queries
        return [location for location in record.trace.writes if location != ANYTHING]
    return [located(record, location) for location in record.trace.writes if location != ANYTHING]
