"""Where a value comes from: the steps and model calls that it depends on, and the program that gives it again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from cenote.harness.past import Past
from cenote.harness.slice_parts import Part, Parts, Whole
from cenote.harness.slice_source import SlicedStatement
from cenote.harness.slice_syntax import ReadCells
from cenote.harness.step import Step
from cenote.harness.symbols import location_of
from cenote_worker.history.collecting import no_collections
from cenote_worker.history.dependencies import written
from cenote_worker.history.history import History
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import StepTree
from cenote_worker.trace import Location

MAX_LINES: Final = 3
"""Of which parts are kept: the live one, and others that somebody compares it with."""

MAX_BEHIND: Final = 100
"""Steps that are made up for behind a further one: there was a question when they ended."""

MAX_CODE: Final = 20_000
"""Characters of each of them, on average: to see what functions speak of takes half a microsecond for one."""

MAX_SOURCES: Final = 20
"""Steps that a step has taken something from, of which parts are worked out behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """steps: whose results the value depends on, in the order in which they ran. model_calls: that asked for them.

    statements: of these steps, those that it depends on. source: the program that they make. With what was there at
    the start, and what clients have put in, it gives the value again; `verify` of a runtime's state tries that.
    doubtful: steps of which not everything is known; because of them everything before the last of them is included.
    end: the step in whose state the value is. wants: what the program expects of the state before the first step.
    whole: every step is there with all of its statements.
    """

    symbol: str
    steps: tuple[Step, ...]
    model_calls: tuple[str, ...]
    statements: tuple[SlicedStatement, ...]
    source: str
    doubtful: tuple[int, ...] = ()
    end: int = 0
    wants: frozenset[Location] = frozenset()
    whole: bool = False


def slice_of(past: Past, symbol: str, end: int, *, whole: bool = False) -> Slice:
    """Raises UnknownNameError for what nothing on the line can have written.

    whole: steps are not taken apart. They are taken apart only where statements are known not to affect each other.
    """
    location = location_of(symbol)
    past.writer(location, end)
    kept = past.history.beside(SlicedLines)
    line = past.line(end)
    with kept.lock, no_collections(len(line)):
        parts = kept.along(past.history.tree, end)
        walk = _Walk(line, location, parts, kept.whole, apart=not whole)
        walk.go()
        return _slice(past, symbol, end, walk)


def _slice(past: Past, symbol: str, end: int, walk: _Walk) -> Slice:
    records, parts = walk.records[::-1], walk.parts[::-1]
    return Slice(
        symbol=symbol,
        steps=past.steps(records),
        model_calls=tuple(dict.fromkeys([record.cause for record in records if record.cause])),
        statements=tuple(chain.from_iterable([part.statements for part in parts])),
        source="\n\n".join([part.text for part in parts]),
        doubtful=tuple(walk.doubtful),
        end=end,
        wants=frozenset(walk.wanted),
        whole=all([part.whole for part in parts]),
    )


class SlicedLines:
    """What slices take of the lines that were asked about last, and of the one that goes on, kept beside them all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by whoever asks. Nobody who adds to the history waits for it."""
        self.whole = Whole()
        self._cells = ReadCells()
        self._lines: dict[int, Parts] = {}
        """By the step that each ends with."""

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """See Companion. A line of which too little is known waits for a question, which needs a part of it."""
        if len(records) > MAX_BEHIND:
            return
        stays = [record for record in records if record.stays]  # no line goes on from others
        if stays and self.lock.acquire(blocking=False):
            tree, end = history.tree, stays[-1].number
            try:
                _, common = self._nearest(tree, end)
                news = tree.between(common, end)
                length = sum([len(record.code) for record in news])
                if len(news) <= len(records) + MAX_BEHIND and length <= MAX_CODE * len(news):
                    self._prepare(history, self.along(tree, end), news)
            finally:
                self.lock.release()

    def _prepare(self, history: History, parts: Parts, news: Sequence[StepRecord]) -> None:
        """What slices of something that these steps have made will ask of those that it was made from."""
        tree = history.tree
        for record in news:
            self.whole.part(record)
            sources = dict[int, set[Location]]()
            for location, source in history.dependencies.inputs(record.number).seen.items():
                sources.setdefault(source, set()).add(location)
            for source, read in islice(sources.items(), MAX_SOURCES):
                if tree.depth(source) > parts.blind:
                    parts.prepare(tree.get(source), tree.depth(source), frozenset(read))

    def along(self, tree: StepTree, end: int) -> Parts:
        """Of the line to a step. One that has much in common with one of these costs what there is more."""
        nearest, common = self._nearest(tree, end)
        if nearest == common:
            parts = self._lines.pop(nearest, None) or Parts(self._cells, self.whole)
        else:
            parts = self._lines[nearest].until(tree.depth(common))
        parts.grow(tree.between(common, end))
        self._lines[end] = parts
        if len(self._lines) > MAX_LINES:  # a short one is had again from a longer one
            del self._lines[min((each for each in self._lines if each != end), key=tree.depth)]
        return parts

    def _nearest(self, tree: StepTree, end: int) -> tuple[int, int]:
        """The end of the line that has most in common with this one, and the last step that they share."""
        parent = tree.get(end).parent if end != START else START
        for known in (end, parent):
            if known in self._lines:
                return known, known
        shared = [(tree.ancestor(each, end), each) for each in self._lines]
        common, nearest = max(shared, key=lambda each: tree.depth(each[0]), default=(START, START))
        return (nearest, common) if common != START else (START, START)


class _Walk:
    """Backwards along a line, with what is wanted of the state in hand."""

    def __init__(
        self, line: Sequence[StepRecord], location: Location, parts: Parts, whole: Whole, *, apart: bool
    ) -> None:
        """apart: steps are taken apart."""
        self._line = line
        self._known = parts
        self._whole = whole
        self._apart = apart
        self.wanted: set[Location] = {location}
        self.records: list[StepRecord] = []
        """Of which the slice has something, the last one first, as `parts`."""
        self.parts: list[Part] = []
        self.doubtful: list[int] = []

    def go(self) -> None:
        """One loop over what may be ten thousand steps: what most of them need is here, and not in functions."""
        line, wanted, blind = self._line, self.wanted, self._known.blind
        for depth in range(len(line), 0, -1):
            record = line[depth - 1]
            if depth == blind:
                self._everything(line[:depth])
                return
            trace = record.trace
            if trace is None or not record.stays:
                continue
            made = wanted.intersection(written(record) if record.private else trace.writes)
            if not made:
                continue
            if self._apart:
                part = self._known.part(record, depth, frozenset(made), wanted)
            else:
                part = self._whole.part(record)
            self.records.append(record)
            self.parts.append(part)
            wanted -= part.settled
            wanted |= part.reads
            if not wanted:
                return

    def _everything(self, line: Sequence[StepRecord]) -> None:
        """What it may have read is anything."""
        stays = [record for record in line if record.stays]
        self.records += stays[::-1]
        self.parts += map(self._whole.part, reversed(stays))
        self.doubtful = [record.number for record in stays if record.unknown]
