"""Which step each step took what it read from. Worked out before anybody asks: questions need no search. Pure.

Steps come on the thread that all jails of a process share, while somebody waits for the result, so they wait here for
whoever has time. Behind a rollback each takes a walk along the whole line: from there on they wait for the first
question, which few processes that serve runtimes are ever asked.

A step of which not everything is known stands between those before it and those after it: it may have read whatever
they left, and may have written whatever was read later. Such dependencies are kept apart from those that were seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import StepTree
from cenote_worker.trace import ANYTHING, Location, key_of, kind_of, name


class Turn(Protocol):
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

    def __init__(self, tree: StepTree, turn: Turn) -> None:
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
