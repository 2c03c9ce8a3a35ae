"""Where a value comes from: the steps and model calls that it depends on, and the program that gives it again.

The program is verified by running it by itself and comparing what it gives.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Literal, Protocol

from cenote.harness.applying.auditor import same
from cenote.harness.record.history_index import HistoryIndex, location_of
from cenote.harness.record.step import Step
from cenote.harness.slicing.program import SlicedStatement, SlicePart, SliceParts, WholeSteps
from cenote.harness.slicing.statement_choice import DRAWN
from cenote.harness.slicing.statements import ReadCells
from cenote_security.errors import MalformedValueError, RehearsalError, RejectedError, UnsafeValueError
from cenote_worker.execution.trace import TREE, Location, file, key_of, kind_of
from cenote_worker.history.history import History, no_collections
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import StepTree, written

MAX_LINES: Final = 3
"""Lines whose parts are kept: the live one, and others that a client compares it with."""

MAX_BEHIND: Final = 100
"""Steps to catch up on after a further one: a question was being answered when they ended."""

MAX_CODE: Final = 20_000
"""Characters of each of them, on average: to see what functions speak of takes half a microsecond for one."""

MAX_SOURCES: Final = 20
"""Steps that a step has taken something from, whose parts are worked out after it."""


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


def slice_of(past: HistoryIndex, symbol: str, end: int, *, whole: bool = False) -> Slice:
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


def _slice(past: HistoryIndex, symbol: str, end: int, walk: _Walk) -> Slice:
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
        """Held by the thread that asks. Threads that add to the history do not wait for it."""
        self.whole = WholeSteps()
        self._cells = ReadCells()
        self._lines: dict[int, SliceParts] = {}
        """By the step that each ends with."""

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """See HistoryObserver. A line of which too little is known waits for a question, which needs a part of it."""
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

    def _prepare(self, history: History, parts: SliceParts, news: Sequence[StepRecord]) -> None:
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

    def along(self, tree: StepTree, end: int) -> SliceParts:
        """Of the line to a step. One that has much in common with one of these costs what there is more."""
        nearest, common = self._nearest(tree, end)
        if nearest == common:
            parts = self._lines.pop(nearest, None) or SliceParts(self._cells, self.whole)
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
        self,
        line: Sequence[StepRecord],
        location: Location,
        parts: SliceParts,
        whole: WholeSteps,
        *,
        apart: bool,
    ) -> None:
        """apart: steps are taken apart."""
        self._line = line
        self._known = parts
        self._whole = whole
        self._apart = apart
        self.wanted: set[Location] = {location}
        self.records: list[StepRecord] = []
        """Of which the slice has something, the last one first, as `parts`."""
        self.parts: list[SlicePart] = []
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


SliceOutcome = Literal["verified", "different", "unverifiable"]

PATIENCE: Final = 30.0
SLOWER: Final = 10.0
"""Seconds that the program may take, and how many times as long as its steps took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of running the program of a slice in a fresh runtime.

    outcome: verified: it gives the value that is there. different: it does not, nor does the program of all its steps
    in full. unverifiable: it cannot be tried, or a second run may well give something else.
    slice: the one that was tried last: where statements were left out that are needed, it has its steps in full.
    reason: one sentence; empty when verified.
    """

    outcome: SliceOutcome
    slice: Slice
    reason: str = ""


class VerificationSandbox(Protocol):
    """A runtime as it is now, and fresh ones like it."""

    def keeps(self, step: int) -> Collection[str]:
        """Names whose values clients put in at this step, and fresh runtimes begin with. START: at first."""

    def present(self, name: str) -> object:
        """A copy of the value that is there. Raises CenoteError."""

    def again(self, source: str, records: Sequence[StepRecord], name: str, seconds: float) -> object:
        """The value after running this in a fresh runtime of the same policy, with no network and nothing to write to
        but its own files. records: of the steps that the source is of: values and files that they put in are there
        from the start, and host calls get the answers that they got, and are never made. Raises CenoteError.
        """


def verify(found: Slice, past: HistoryIndex, stage: VerificationSandbox) -> Verification:
    """See Verification. Raises UnavailableError when no jail can be had."""
    for reason in _obstacles(found, past, stage):
        return Verification(outcome="unverifiable", slice=found, reason=reason)
    try:
        present = stage.present(found.symbol)
    except RejectedError as refused:
        return Verification(outcome="unverifiable", slice=found, reason=f"it cannot be compared: {refused}")
    try:
        reason = _tried(found, present, stage)
        if reason and not found.whole:
            found = slice_of(past, found.symbol, found.end, whole=True)
            for obstacle in _obstacles(found, past, stage):
                return Verification(outcome="unverifiable", slice=found, reason=obstacle)
            reason = _tried(found, present, stage)
    except RejectedError as refused:  # by rights or quotas: nothing ran
        return Verification(outcome="unverifiable", slice=found, reason=f"it cannot be tried: {refused}")
    if not reason:
        return Verification(outcome="verified", slice=found)
    for excuse in _excuses(found):
        return Verification(outcome="unverifiable", slice=found, reason=f"{reason}: {excuse}")
    return Verification(outcome="different", slice=found, reason=reason)


def _tried(found: Slice, present: object, stage: VerificationSandbox) -> str:
    """Why the program does not give the value; empty when it does."""
    records = [step.record for step in found.steps]
    seconds = PATIENCE + SLOWER * sum(record.duration for record in records)
    try:
        value = stage.again(found.source, records, found.symbol, seconds)
    except (RehearsalError, UnsafeValueError, MalformedValueError) as error:
        return str(error)
    return "" if same(present, value) else f"it gives another `{found.symbol}`"


def _obstacles(found: Slice, past: HistoryIndex, stage: VerificationSandbox) -> Iterator[str]:
    """Why there is no use in trying."""
    if kind_of(location_of(found.symbol)) != "name" or "/" in found.symbol:
        yield f"`{found.symbol}` is no variable that everybody sees"
    if found.end != past.head:
        yield f"only what is live can be compared, and that is the state after step {past.head}"
    begun = {key_of(each) for each in found.wants if kind_of(each) == "name"} & set(past.begun)
    files = {file(path) for path in past.history.begun_files}
    for name in sorted(begun - set(stage.keeps(START))):
        yield f"the value that `{name}` had at the start is kept no more"
    made = set(begun)
    in_part = {each.step for each in found.statements if each.span is not None}
    for step in found.steps:
        if step.status == "failed" and step.number not in in_part:
            yield f"step {step.number} failed, and the program would end there"
        yield from _obstacle(step.record, made, stage)
        yield from _obstacle_of_upload(step.record, files)
        made |= set(step.writes)
        if (trace := step.record.trace) is not None:
            files |= trace.reads.keys() | (trace.writes.keys() - {TREE})


def _obstacle(record: StepRecord, made: Collection[str], stage: VerificationSandbox) -> Iterator[str]:
    if record.kind in ("removal", "unrecorded") or (record.kind == "upload" and not record.content):
        yield f"nothing is kept of what step {record.number} did to {', '.join(record.names) or 'the state'}"
    if record.kind == "process":
        yield f"step {record.number} was a process beside the namespace, which is not run again"
    if record.private:
        yield f"step {record.number} worked with names that only {record.author} sees"
    if record.kind == "injection":
        for name in record.names:
            if name not in stage.keeps(record.number):
                yield f"the value of `{name}` that step {record.number} put in is kept no more"
            if name in made:
                yield f"step {record.number} put in a `{name}` where there had been another"


def _obstacle_of_upload(record: StepRecord, files: AbstractSet[Location]) -> Iterator[str]:
    """files: that were written or looked at before it. Fresh runtimes begin with what it wrote."""
    for path in record.names if record.kind == "upload" else ():
        if not files.isdisjoint((file(path), TREE)):
            yield f"step {record.number} wrote {path}, and a step before it may have found another, or none"


def _excuses(found: Slice) -> Iterator[str]:
    """Why another run may give something else though nothing is missing."""
    for step in found.steps:
        trace = step.record.trace
        for reason in trace.unrepeatable if trace is not None else ():
            yield f"step {step.number} may give something else each time, since {reason}"
        for call in step.host_calls:
            if not call.answered:
                yield f"the answer of {call.target} to step {step.number} was not kept"
    if found.wants & DRAWN:
        yield "it draws random numbers that no step has seeded"
    for each in sorted(found.wants):
        if kind_of(each) == "file":
            yield f"it reads {key_of(each)}, which no step has written"
