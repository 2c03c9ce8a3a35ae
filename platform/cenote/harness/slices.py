"""Where a value comes from: the steps and model calls that it depends on, and the program that gives it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cenote.harness.past import Past
from cenote.harness.slice_choice import OUTSIDE, Chooser
from cenote.harness.slice_line import LineNames
from cenote.harness.slice_source import SlicedStatement, source_of
from cenote.harness.slice_syntax import Statement, parts_of_packages, statements_of
from cenote.harness.step import Step
from cenote.harness.symbols import location_of
from cenote_worker.history.dependencies import changed, located, looked_at, written
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import Location, key_of, kind_of, name


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
    walk = _Walk(past.line(end), location, whole=whole)
    walk.go()
    parts = walk.parts[::-1]
    return Slice(
        symbol=symbol,
        steps=past.steps(record for record, _ in parts),
        model_calls=tuple(dict.fromkeys(record.cause for record, _ in parts if record.cause)),
        statements=tuple(
            SlicedStatement.of(record, each) for record, chosen in parts for each in chosen or (None,)
        ),
        source=source_of(parts),
        doubtful=tuple(walk.doubtful),
        end=end,
        wants=frozenset(walk.wanted),
        whole=all(chosen is None for _, chosen in parts),
    )


class _Walk:
    """Backwards along a line, with what is wanted of the state in hand."""

    def __init__(self, line: Sequence[StepRecord], location: Location, *, whole: bool) -> None:
        self._line = line
        self._whole = whole
        self._names: LineNames | None = None
        self.wanted: set[Location] = {location}
        self.parts: list[tuple[StepRecord, Sequence[Statement] | None]] = []
        """Steps, the last one first; None: with all of their statements."""
        self.doubtful: list[int] = []

    def go(self) -> None:
        for depth in range(len(self._line), 0, -1):
            record = self._line[depth - 1]
            if not self.wanted:
                return
            if not record.stays:
                continue
            if record.unknown:
                self._everything(self._line[:depth])
                return
            if not self.wanted.isdisjoint(written(record)):
                self._take(record, depth)

    def _everything(self, line: Sequence[StepRecord]) -> None:
        """What it may have read is anything."""
        stays = [record for record in line if record.stays]
        self.parts += [(record, None) for record in reversed(stays)]
        self.doubtful = [record.number for record in stays if record.unknown]

    def _take(self, record: StepRecord, depth: int) -> None:
        reads = {located(record, each) for each in looked_at(record)}
        chosen = None if self._whole else self._apart(record, depth)
        if chosen is not None:
            statements, reads = chosen
            self.parts.append((record, statements))
        else:
            self.parts.append((record, None))
        satisfied = set(written(record)) - set(map(name, parts_of_packages(record.code)))
        satisfied -= changed(record)  # what it was before is a part of what it is
        if record.status == "failed":  # it may not have come to that
            satisfied = set()
        self.wanted = (self.wanted - satisfied) | reads

    def _apart(self, record: StepRecord, depth: int) -> tuple[Sequence[Statement], set[Location]] | None:
        """Statements that what is wanted comes from, and what they read; None where that is all of the step."""
        trace = record.trace
        if record.kind != "cell" or record.private or trace is None:
            return None
        statements = _begun(record)
        if statements is None or not self._line_names.readable:
            return None
        made = self.wanted & trace.writes.keys()
        met = made | (self.wanted & trace.reads.keys())
        choice = Chooser(statements, self._line_names.around(depth)).choose(_spoken(made), _spoken(met))
        if choice is None or (record.status == "failed" and statements[-1] in choice.statements):
            return None
        if len(choice.statements) == len(statements):
            return None
        spoken = frozenset[str]().union(*(each.mentioned for each in statements))
        reads = {
            each
            for each in trace.reads
            if (kind_of(each) == "name" and key_of(each) in choice.wanted)
            or (choice.deep and (kind_of(each) != "name" or key_of(each) not in spoken))
        }
        return choice.statements, reads

    @property
    def _line_names(self) -> LineNames:
        if self._names is None:
            self._names = LineNames(self._line)
        return self._names


def _begun(record: StepRecord) -> Sequence[Statement] | None:
    """Statements of a cell that were run, the last of them in part if the cell failed; None where nobody can tell."""
    statements = statements_of(record.code)
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
