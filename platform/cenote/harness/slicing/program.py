"""The program of a slice: the parts of steps that it takes, and their text with a heading for each step.

What slices take of a step is worked out once for what is wanted there; slices of one line have most of it in
common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from cenote.harness.slicing.statement_choice import FOREIGN, OUTSIDE, Chooser, LineChanges, LineNames
from cenote.harness.slicing.statements import ReadCells, Statement, parts_of_packages
from cenote_worker.execution.results import Span
from cenote_worker.execution.trace import Location, key_of, kind_of, name
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import changed, located, looked_at, written
from cenote_worker.jail.cells.ipython_syntax import to_python


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedStatement:
    """Part of a step. span: in the step's code; None for all of it, and for a change without code."""

    step: int
    text: str
    span: Span | None = None

    @classmethod
    def of(cls, record: StepRecord, statement: Statement | None) -> Self:
        if statement is None:
            return cls(step=record.number, text=_text(record))
        return cls(step=record.number, text=statement.text, span=statement.span)


def with_heading(record: StepRecord, statements: Sequence[Statement] | None) -> str:
    """None: all of the step. Such texts, with an empty line between, are the program."""
    if record.kind not in ("cell", "deletion"):
        return _text(record)
    by = f", {record.author}" if record.author else ""
    text = _whole(record) if statements is None else "\n".join(each.text for each in statements)
    return f"# step {record.number}{by}\n{text}"


def _whole(record: StepRecord) -> str:
    """A magic that stands for the rest of its cell is written as a call, lest it stand for the steps after it."""
    text = _text(record)
    return to_python(text).rstrip() if "%%" in text else text


def _text(record: StepRecord) -> str:
    if record.kind == "cell":
        return record.code
    who = record.author or "the owner"
    names = ", ".join(record.names)
    match record.kind:
        case "injection":
            return f"# step {record.number}: {names}, put in by {who}"
        case "deletion":
            return f"del {names}"
        case "upload":
            return f"# step {record.number}: {names}, a file that {who} uploaded"
        case "removal":
            return f"# step {record.number}: {names}, a file that {who} removed"
    if record.kind == "process":
        shown = record.code.splitlines()[0][:100]
        return f"# a process beside the namespace: {shown}"
    return f"# whatever ran up to step {record.number}: nothing is recorded of it"


MAX_STEPS: Final = 30_000
"""Of one line of which parts are kept. One takes some kilobytes, with all that is said of it here."""

MAX_PARTS: Final = 100
"""Of one step: there are as many as sets of what it has written."""

MAX_AHEAD: Final = 10
"""Of these, those that are worked out before a question."""

MAX_CODE_AHEAD: Final = 10_000
MAX_TOUCHED_AHEAD: Final = 300
"""Characters of a cell, and locations that it has read or written, which is taken apart before a question."""

_NOTHING: Final[frozenset[Location]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePart:
    """Of one step. reads: what has to be there before it. settled: what it makes without that being there.
    whole: it is all of the step. text: of the statements, with a heading.
    """

    reads: frozenset[Location]
    settled: frozenset[Location]
    statements: tuple[SlicedStatement, ...]
    whole: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """Parts of one step, by what is wanted of what it has written. Each with what else it may have changed: who wants
    something of that has to ask for it, too.

    names: that the step has to do with; see LineNames.around. foreign: whether functions speak of others; None where
    that is all one.
    """

    parts: dict[frozenset[Location], tuple[SlicePart, frozenset[Location]]]
    names: frozenset[str] = frozenset()
    foreign: bool | None = None

    def depends_on(self, news: LineChanges) -> bool:
        return self.foreign is (news.used <= self.names) or not news.names.isdisjoint(self.names)


class WholeSteps:
    """Parts that are all of their steps. They are the same on each line."""

    def __init__(self) -> None:
        self._found: dict[int, SlicePart] = {}

    def part(self, record: StepRecord) -> SlicePart:
        found = self._found.get(record.number)
        if found is None:
            if len(self._found) >= MAX_STEPS:
                self._found.clear()
            found = self._found[record.number] = part_of(record)
        return found


class SliceParts:
    """Of the steps of one line. Holds nothing of their results."""

    def __init__(self, cells: ReadCells, whole: WholeSteps) -> None:
        self._cells = cells
        self._whole = whole
        self._names = LineNames(cells)
        self._taken: dict[int, _Taken] = {}

    @property
    def blind(self) -> int:
        """Depth of the last step of which not everything is known; 0 for none."""
        return self._names.blind

    def grow(self, records: Iterable[StepRecord]) -> None:
        """The line goes on with these."""
        news = self._names.grow(records)
        if news.everything:
            self._taken.clear()
        elif news.names:
            concerned = [depth for depth, taken in self._taken.items() if taken.depends_on(news)]
            for depth in concerned:
                del self._taken[depth]

    def until(self, depth: int) -> SliceParts:
        """Of the line up to there, for another that goes on from there; with what is known of its steps."""
        parts = SliceParts(self._cells, self._whole)
        parts._names, news = self._names.until(depth)
        if not news.everything:
            parts._taken = {
                at: taken for at, taken in self._taken.items() if at <= depth and not taken.depends_on(news)
            }
        return parts

    def prepare(self, record: StepRecord, depth: int, read: frozenset[Location]) -> None:
        """What slices will probably ask of a step: what a later one has read of what it has written, read; and that
        together with what others have read.
        """
        taken = self._taken.get(depth)
        parts = taken.parts if taken is not None else {}
        if read in parts or len(parts) >= MAX_AHEAD or len(self._taken) >= MAX_STEPS:
            return
        if not (self._names.crowded or _is_dear(record)):
            self._take(record, depth, {read, read.union(*parts)})

    def part(
        self, record: StepRecord, depth: int, made: frozenset[Location], wanted: Collection[Location]
    ) -> SlicePart:
        """The part of the step there, whose trace is known. made: what it has written of what later steps want."""
        while True:
            taken = self._taken.get(depth)
            if taken is None or made not in taken.parts:
                taken = self._take(record, depth, (made,))
            part, disturbed = taken.parts[made]
            if disturbed.isdisjoint(wanted):
                return part
            made |= disturbed.intersection(wanted)

    def _take(self, record: StepRecord, depth: int, wanted: Iterable[frozenset[Location]]) -> _Taken:
        """Its parts for each of these are known now."""
        statements, whole = self._statements(record), (self._whole.part(record), _NOTHING)
        if statements is None:
            found = _Taken(parts=dict.fromkeys(wanted, whole))
        else:
            around, names = self._names.around(depth)
            chooser = Chooser(statements, around)
            parts = {made: _chosen(record, statements, chooser, made) or whole for made in wanted}
            foreign = None if chooser.quiet else FOREIGN in around.used
            found = _Taken(parts=parts, names=names, foreign=foreign)
        known = self._taken.get(depth)
        if known is not None:
            if len(known.parts) >= MAX_PARTS:
                known.parts.clear()
            known.parts.update(found.parts)
            return known
        if len(self._taken) >= MAX_STEPS:
            self._taken.clear()
        self._taken[depth] = found
        return found

    def _statements(self, record: StepRecord) -> Sequence[Statement] | None:
        """Of a cell that is taken apart, as far as they were run."""
        if record.kind != "cell" or record.private or not self._names.readable:
            return None
        return _begun(record, self._cells.statements(record.code))


def _is_dear(record: StepRecord) -> bool:
    """Whether to take it apart costs more than a millisecond or two, which no cell should wait for."""
    trace = record.trace
    touched = len(trace.reads) + len(trace.writes) if trace is not None else 0
    return len(record.code) > MAX_CODE_AHEAD or touched > MAX_TOUCHED_AHEAD


def _chosen(
    record: StepRecord, statements: Sequence[Statement], chooser: Chooser, made: frozenset[Location]
) -> tuple[SlicePart, frozenset[Location]] | None:
    """Statements that what is wanted comes from, and what they read; see _Taken. None: that is all of the step."""
    trace = record.trace
    assert trace is not None, "of others nothing is wanted"
    words = _spoken(made)
    others = {each: word for each in (*trace.reads, *trace.writes) if (word := _word(each)) not in words}
    choice = chooser.choose(words, others.values())
    if choice is None or (record.status == "failed" and statements[-1] in choice.statements):
        return None
    if len(choice.statements) == len(statements):
        return None
    spoken = frozenset[str]().union(*(each.mentioned for each in statements))
    reads = frozenset(
        each
        for each in trace.reads
        if (kind_of(each) == "name" and key_of(each) in choice.wanted)
        or (choice.deep and (kind_of(each) != "name" or key_of(each) not in spoken))
    )
    part = part_of(record, choice.statements, reads)
    wider = chooser.choose(words | choice.changed) if choice.changed else choice
    if wider is not None and wider.statements == choice.statements:
        return part, _NOTHING  # a caller that wants some of it has asked for that already
    return part, frozenset([each for each, word in others.items() if word in choice.changed])


def part_of(
    record: StepRecord,
    statements: Sequence[Statement] | None = None,
    reads: frozenset[Location] | None = None,
) -> SlicePart:
    """None: all statements of the step, and all that it has read. The first slice of a line does this for each of
    what may be ten thousand steps.
    """
    settled = frozenset[Location]()
    if record.status != "failed":  # else it may not have come to that
        settled = frozenset(written(record)) - changed(record)  # what it was before is a part of what it is
        if packages := parts_of_packages(record.code):
            settled -= frozenset(map(name, packages))
    if reads is None:
        seen = looked_at(record)
        reads = frozenset([located(record, each) for each in seen] if record.private else seen)
    return SlicePart(
        reads=reads,
        settled=settled,
        statements=tuple([SlicedStatement.of(record, each) for each in statements or (None,)]),
        whole=statements is None,
        text=with_heading(record, statements),
    )


def _begun(record: StepRecord, statements: Sequence[Statement] | None) -> Sequence[Statement] | None:
    """Statements of a cell that were run, the last of them in part if the cell failed; None if not known."""
    if statements is None or record.status == "ok":
        return statements
    span = record.error.span if record.error is not None else None
    for count, each in enumerate(statements, 1):
        if span is not None and each.span.line <= span.line <= each.span.end_line:
            shared = any(other.span.line <= span.line for other in statements[count:])
            partly = replace(each, sure=frozenset())
            return None if shared or each.has_inner_code else [*statements[: count - 1], partly]
    return None


def _spoken(locations: Iterable[Location]) -> set[str]:
    """As the statements of a cell know them."""
    return set(map(_word, locations))


def _word(location: Location) -> str:
    return location[5:] if location.startswith("name:") else OUTSIDE
