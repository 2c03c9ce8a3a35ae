"""A history with the look-ups that several questions need.

Nothing is cached: each question sees what has happened by then. Users name a variable or a location in text, such
as `df` or `file:data.csv`; records name locations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cenote.harness.record.step import Step
from cenote_security.errors import UnknownEntryError, UnknownNameError, UsageError
from cenote_worker.execution.trace import ANYTHING, KINDS, Location, Version, name
from cenote_worker.history.events import VariablesDescribed
from cenote_worker.history.history import History
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import Inputs, located, written
from cenote_worker.jail.errors.nearest import nearest


def location_of(symbol: str) -> Location:
    """A variable's name, `author/name` in a private namespace; or a location, such as `file:data.csv`.

    Raises UsageError for what is no text.
    """
    if not isinstance(symbol, str):
        raise UsageError(
            f"a symbol is the name of a variable, or such as `file:data.csv`, not {type(symbol).__name__}"
        )
    return Location(symbol) if symbol.startswith(KINDS) else name(symbol)


def symbol_of(location: Location) -> str:
    """The name of a variable; anything else as it is."""
    return location.removeprefix("name:")


Versions = dict[Location, tuple[Version, int]]
"""What each location holds, and the step that wrote it."""

AT_START = Version("at the start")
"""The version of what the state before the first step holds."""


class HistoryIndex:
    """Reads a history. Nothing is kept: each question sees what has happened by then."""

    def __init__(self, history: History) -> None:
        self._history = history

    def flush(self) -> None:
        self._history.flush()

    @property
    def history(self) -> History:
        return self._history

    @property
    def head(self) -> int:
        return self._history.tree.head

    @property
    def begun(self) -> tuple[str, ...]:
        """Names that the state before the first step holds."""
        return self._history.begun

    @property
    def size(self) -> int:
        return self._history.size

    def all(self) -> list[StepRecord]:
        """Of all lines, in the order in which they ended."""
        return list(self._history.tree)

    def get(self, number: int) -> StepRecord:
        """Raises UnknownEntryError."""
        self.check(number)
        return self._history.tree.get(number)

    def check(self, number: int) -> None:
        """Raises UnknownEntryError for what is neither a step nor the start, UsageError for what is no number."""
        if not isinstance(number, int):
            raise UsageError(f"a step is asked for by its number, not by {number!r:.100}")
        if number not in self._history.tree:
            raise UnknownEntryError("step", str(number))

    def line(self, end: int) -> list[StepRecord]:
        self.check(end)
        return self._history.tree.line(end)

    def present(self, line: Iterable[StepRecord]) -> Callable[[int], int]:
        """Of a step's number, that of the step in this line which stands for the same one, through whatever patches;
        the number itself where none does.
        """
        first = self._history.tree.first
        present = {first(record.number): record.number for record in line}
        return lambda number: present.get(first(number), number)

    def fork(self, one: int, other: int) -> tuple[int, list[StepRecord], list[StepRecord]]:
        """Where the lines to two steps part, and what each has after that."""
        self.check(one)
        self.check(other)
        tree = self._history.tree
        ancestor = tree.ancestor(one, other)
        return ancestor, tree.between(ancestor, one), tree.between(ancestor, other)

    def inputs(self, number: int) -> Inputs:
        return self._history.dependencies.inputs(number)

    def said(self, number: int) -> Iterable[VariablesDescribed]:
        return self._history.said(number)

    def depth(self, number: int) -> int:
        return self._history.tree.depth(number)

    def versions(self, end: int) -> Versions:
        """Of what is known of, after a step."""
        known = {Location(f"name:{each}"): (AT_START, START) for each in self.begun}
        follow(known, self.line(end))
        return known

    def writer(self, location: Location, end: int) -> tuple[StepRecord | None, list[int]]:
        """The last step of a line that is known to have written a location, and those later ones that may have.

        Raises UnknownNameError when nothing can have written it.
        """
        doubtful: list[int] = []
        self.check(end)
        for record in self._history.tree.back(end):
            if not record.stays:
                continue
            if location in written(record):
                return record, doubtful[::-1]
            if record.unknown:
                doubtful.append(record.number)
        if not doubtful and location not in {Location(f"name:{each}") for each in self.begun}:
            known = [symbol_of(each) for each in self.versions(end)]
            raise UnknownNameError(symbol_of(location), tuple(nearest(symbol_of(location), known)))
        return None, doubtful[::-1]

    def steps(self, records: Iterable[StepRecord]) -> tuple[Step, ...]:
        return tuple(map(Step, records))


def follow(known: Versions, records: Iterable[StepRecord]) -> None:
    """What these steps, one after the other, make of what was known."""
    for record in records:
        if record.trace is None or not record.stays:
            continue
        number, private = record.number, record.private
        for location, version in record.trace.writes.items():
            known[located(record, location) if private else location] = (version, number)
    known.pop(ANYTHING, None)  # which is no place of its own
