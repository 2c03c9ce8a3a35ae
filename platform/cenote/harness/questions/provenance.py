"""What was live at one point of a history, who wrote it, what came of it, and how two states differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cenote.harness.record.history_index import HistoryIndex, Versions, follow, location_of, symbol_of
from cenote.harness.record.last_writer import last_writer
from cenote.harness.record.step import Step
from cenote_worker.execution.results import Span, VariableInfo
from cenote_worker.execution.trace import ABSENT, Location, ValueKind, Version, key_of, kind_of
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import Inputs, located, looked_at, written


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVariable:
    """step: the one that wrote it last, as far as is known; 0 for what was there at the start, None if not known.

    type, shape: as the step left it, as far as that is known. size, description: as in VariableInfo; empty unless the
    namespace has been described since.
    """

    name: str
    step: int | None = None
    type: str = ""
    shape: tuple[int, ...] | None = None
    size: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state after a step; after step 0 it is that before any.

    variables: those known to be live, by name. unknown: steps since the last description of which not everything is
    known: because of them there may be more variables, or fewer.
    """

    number: int
    code: str
    step: Step | None
    variables: tuple[LiveVariable, ...]
    unknown: tuple[int, ...] = ()


def moment(past: HistoryIndex, number: int) -> Moment:
    """Raises UnknownEntryError for a step that is not there."""
    line = past.line(number)
    step = Step(line[-1]) if line else None
    described, unknown = _described(past, line)
    kinds = _kinds(line)
    live = {
        symbol_of(place): writer
        for place, (version, writer) in past.versions(number).items()
        if kind_of(place) == "name" and version != ABSENT
    }
    known = {each: described.get(each, kinds.get(each)) for each in (*live, *described)}
    variables = [_variable(each, live.get(each), info) for each, info in sorted(known.items())]
    return Moment(
        number=number, code=step.code if step else "", step=step, variables=tuple(variables), unknown=unknown
    )


def _described(past: HistoryIndex, line: list[StepRecord]) -> tuple[dict[str, VariableInfo], tuple[int, ...]]:
    """What was said of variables and is still true, and the steps since then that may have changed anything."""
    infos: dict[str, VariableInfo] = {}
    since = 0
    for place, number in enumerate((START, *(record.number for record in line))):
        for said in past.said(number):
            since = place
            infos |= {info.name: info for info in said.variables}
            infos = {name: info for name, info in infos.items() if name not in said.gone}
    later = [record for record in line[since:] if record.stays]
    stale = {symbol_of(each) for record in later for each in written(record)} if infos else set()
    unknown = tuple(record.number for record in later if record.unknown)
    return {name: info for name, info in infos.items() if name not in stale}, unknown


def _kinds(line: list[StepRecord]) -> dict[str, ValueKind]:
    """What the last step that wrote each name has left there."""
    found: dict[str, ValueKind] = {}
    for record in line:
        if record.stays and record.unknown:
            found.clear()
        if record.stays and record.trace is not None:
            for place in record.trace.writes:
                found.pop(symbol_of(place), None)
            found |= {symbol_of(place): kind for place, kind in record.trace.kinds.items()}
    return found


def _variable(symbol: str, step: int | None, info: VariableInfo | ValueKind | None) -> LiveVariable:
    if info is None:
        return LiveVariable(name=symbol, step=step)
    if isinstance(info, ValueKind):
        return LiveVariable(name=symbol, step=step, type=info.type, shape=info.shape)
    return LiveVariable(
        name=symbol,
        step=step,
        type=info.type,
        shape=info.shape,
        size=info.size,
        description=info.description,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """step: None for what was there before the first step, and where only doubtful steps can have written it.

    deleted: the step removed it. span, statement: in the step's code; None and empty where no statement names it, as
    when a function wrote it. doubtful: later steps that may have written it too, for all that is known.
    """

    symbol: str
    step: Step | None
    author: str = ""
    cause: str = ""
    deleted: bool = False
    span: Span | None = None
    statement: str = ""
    doubtful: tuple[int, ...] = ()


def blame(past: HistoryIndex, symbol: str, end: int) -> Blame:
    """Raises UnknownNameError for what nothing on the line can have written."""
    location = location_of(symbol)
    record, doubtful = past.writer(location, end)
    if record is None:
        return Blame(symbol=symbol, step=None, doubtful=tuple(doubtful))
    span, statement = _statement(record, location)
    return Blame(
        symbol=symbol,
        step=Step(record),
        author=record.author,
        cause=record.cause,
        deleted=_version(record, location) == ABSENT,
        span=span,
        statement=statement,
        doubtful=tuple(doubtful),
    )


def _version(record: StepRecord, location: Location) -> str:
    assert record.trace is not None
    writes = record.trace.writes
    return writes[location] if location in writes else writes[_own(location)]


def _own(location: Location) -> Location:
    """As the step itself names it."""
    return Location(f"{kind_of(location)}:{key_of(location).rpartition('/')[2]}")


def _statement(record: StepRecord, location: Location) -> tuple[Span | None, str]:
    if record.kind != "cell" or kind_of(location) != "name":
        return None, ""
    return last_writer(record.code, key_of(_own(location)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependents:
    """Of one line, in its order.

    steps: numbers of those that were seen to take something from it, directly or through others. symbols: what these
    have written that is still there at the end of the line. doubtful: further steps that may depend on it, since not
    everything is known of them, or of one between.
    """

    steps: tuple[int, ...] = ()
    symbols: tuple[str, ...] = ()
    doubtful: tuple[int, ...] = ()


def of_step(past: HistoryIndex, number: int, end: int) -> Dependents:
    """Dependents of a step, on the line to `end`."""
    past.check(number)
    search = _Search(past, end)
    search.seed(number)
    return search.found()


def of_symbol(past: HistoryIndex, symbol: str, end: int) -> Dependents:
    """Dependents of what a symbol holds at the end of the line. Raises UnknownNameError, see HistoryIndex.writer."""
    location = location_of(symbol)
    record, doubtful = past.writer(location, end)
    search = _Search(past, end, location, record.number if record is not None else START)
    for each in doubtful:
        search.doubt(each)
    return search.found()


class _Search:
    """Goes along one line, from its beginning: a step that depends on another one comes after it."""

    def __init__(
        self, past: HistoryIndex, end: int, location: Location | None = None, writer: int = START
    ) -> None:
        self._past = past
        self._line = [record for record in past.line(end) if record.stays]
        self._end = end
        self._location, self._writer = location, writer
        self._sure: set[int] = set()
        self._doubtful: set[int] = set()
        self._seeds: set[int] = set()

    def seed(self, number: int) -> None:
        self._sure.add(number)
        self._seeds.add(number)

    def doubt(self, number: int) -> None:
        """It may have written it, and so read it too."""
        self._doubtful.add(number)

    def found(self) -> Dependents:
        begun = self._location is not None and self._writer == START
        for record in self._line:
            number, inputs = record.number, self._past.inputs(record.number)
            writers = inputs.seen.values()
            if not self._sure.isdisjoint(writers) or self._reads(record, inputs):
                self._sure.add(number)
            elif self._may_take(record, inputs, begun=begun):
                self._doubtful.add(number)
            begun = begun or number in self._seeds or number == self._writer or number in self._doubtful
        sure = self._sure - self._seeds
        steps = [each.number for each in self._line if each.number in sure]
        doubts = self._doubtful - self._sure
        doubtful = [each.number for each in self._line if each.number in doubts]
        return Dependents(steps=tuple(steps), symbols=self._symbols(set(steps)), doubtful=tuple(doubtful))

    def _reads(self, record: StepRecord, inputs: Inputs) -> bool:
        """What the symbol holds now: not what it held before its last writer, nor what that took itself."""
        if self._location is None or record.number == self._writer:
            return False
        if self._writer != START:
            return inputs.seen.get(self._location) == self._writer
        if self._location in inputs.seen:
            return False
        return self._location in {located(record, each) for each in looked_at(record)}

    def _may_take(self, record: StepRecord, inputs: Inputs, *, begun: bool) -> bool:
        """begun: what is asked for was there before this step."""
        if begun and record.unknown:
            return True
        return (
            inputs.shadow in self._doubtful
            or inputs.shadow in self._sure
            or not self._doubtful.isdisjoint(inputs.seen.values())
        )

    def _symbols(self, steps: set[int]) -> tuple[str, ...]:
        last: dict[Location, int] = {}
        for record in self._line:
            last.update(dict.fromkeys(written(record), record.number))
        return tuple(sorted(symbol_of(each) for each, writer in last.items() if writer in steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiff:
    """From the state after step `a` to that after step `b`.

    added, removed, changed: names of variables, and locations such as `file:report.md`. ancestor: the last step that
    both have in common. left, right: the steps from there to `a`, and to `b`: how the programs differ. unknown:
    steps among these of which not everything is known: there may be more differences.
    """

    a: int
    b: int
    ancestor: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    left: tuple[Step, ...]
    right: tuple[Step, ...]
    unknown: tuple[int, ...] = ()


def diff(past: HistoryIndex, a: int, b: int, other: HistoryIndex | None = None) -> StateDiff:
    """other: of which `b` is a step; None for the same. Raises UnknownEntryError for a step that is not there."""
    if other is None:
        ancestor, left, right = past.fork(a, b)
    else:
        ancestor, left, right = _apart(past.line(a), other.line(b))
    common = past.versions(ancestor)
    before, after = _present(common, left), _present(common, right)
    changed = [each for each in before.keys() & after.keys() if before[each] != after[each]]
    return StateDiff(
        a=a,
        b=b,
        ancestor=ancestor,
        added=_symbols(after.keys() - before.keys()),
        removed=_symbols(before.keys() - after.keys()),
        changed=_symbols(changed),
        left=past.steps(left),
        right=past.steps(right),
        unknown=tuple(each.number for each in (*left, *right) if each.unknown and each.stays),
    )


def _apart(one: list[StepRecord], other: list[StepRecord]) -> tuple[int, list[StepRecord], list[StepRecord]]:
    """See HistoryIndex.fork, of two histories: a branch begins with the very steps of its origin."""
    shared = 0
    for here, there in zip(one, other, strict=False):
        if _identity(here) != _identity(there):
            break
        shared += 1
    return one[shared - 1].number if shared else START, one[shared:], other[shared:]


def _identity(record: StepRecord) -> tuple[object, ...]:
    """Of a step in several histories; its results may have been dropped in one."""
    return record.number, record.parent, record.kind, record.code, record.author, record.started


def _present(common: Versions, records: Iterable[StepRecord]) -> Mapping[Location, Version]:
    known = dict(common)
    follow(known, records)
    return {place: version for place, (version, _) in known.items() if version != ABSENT}


def _symbols(locations: Iterable[Location]) -> tuple[str, ...]:
    return tuple(sorted(map(symbol_of, locations)))
