"""What slices take of the steps of a line: worked out once for what is wanted there, which slices have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cenote.harness.slice_choice import OUTSIDE, Chooser
from cenote.harness.slice_line import LineNames
from cenote.harness.slice_source import SlicedStatement, with_heading
from cenote.harness.slice_syntax import ReadCells, Statement, parts_of_packages
from cenote_worker.history.dependencies import changed, located, looked_at, written
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import Location, key_of, kind_of, name

MAX_PARTS: Final = 30_000
"""That are kept of one line: of several slices of ten thousand steps. One takes a kilobyte, besides its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Of one step. reads: what has to be there before it. settled: what it makes without that being there.
    whole: it is all of the step. text: of the statements, with a heading.
    """

    reads: frozenset[Location]
    settled: frozenset[Location]
    statements: tuple[SlicedStatement, ...]
    whole: bool
    text: str


class Parts:
    """Of the steps of one line. Holds nothing of their results."""

    def __init__(self, cells: ReadCells) -> None:
        self._cells = cells
        self._names = LineNames(cells)
        self._found: dict[tuple[int, frozenset[Location]], Part] = {}

    @property
    def blind(self) -> int:
        """Depth of the last step of which not everything is known; 0 for none."""
        return self._names.blind

    def grow(self, records: Iterable[StepRecord]) -> None:
        """The line goes on with these."""
        if self._names.grow(records):
            self._found.clear()

    def part(self, record: StepRecord, depth: int, met: frozenset[Location]) -> Part:
        """Of the step there. met: of what is wanted behind it, what it has written or read."""
        known = self._found.get((depth, met))
        if known is None:
            chosen = self._apart(record, depth, met)
            if len(self._found) >= MAX_PARTS:
                self._found.clear()
            known = self._found[depth, met] = part_of(record) if chosen is None else part_of(record, *chosen)
        return known

    def _apart(
        self, record: StepRecord, depth: int, met: frozenset[Location]
    ) -> tuple[Sequence[Statement], frozenset[Location]] | None:
        """Statements that what is wanted comes from, and what they read; None where that is all of the step."""
        trace = record.trace
        if record.kind != "cell" or record.private or trace is None:
            return None
        statements = _begun(record, self._cells.statements(record.code))
        if statements is None or not self._names.readable:
            return None
        choice = Chooser(statements, self._names.around(depth)).choose(
            _spoken(met & trace.writes.keys()), _spoken(met)
        )
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
        return choice.statements, reads


def part_of(
    record: StepRecord,
    statements: Sequence[Statement] | None = None,
    reads: frozenset[Location] | None = None,
) -> Part:
    """None: all statements of the step, and all that it has read."""
    settled = set(written(record)) - set(map(name, parts_of_packages(record.code)))
    settled -= changed(record)  # what it was before is a part of what it is
    if record.status == "failed":  # it may not have come to that
        settled = set()
    return Part(
        reads=frozenset(located(record, each) for each in looked_at(record)) if reads is None else reads,
        settled=frozenset(settled),
        statements=tuple(SlicedStatement.of(record, each) for each in statements or (None,)),
        whole=statements is None,
        text=with_heading(record, statements),
    )


def _begun(record: StepRecord, statements: Sequence[Statement] | None) -> Sequence[Statement] | None:
    """Statements of a cell that were run, the last of them in part if the cell failed; None where nobody can tell."""
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
    return {key_of(each) if kind_of(each) == "name" else OUTSIDE for each in locations}
