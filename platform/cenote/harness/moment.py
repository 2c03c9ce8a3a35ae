"""What was live at one point of a history."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.harness.past import Past
from cenote.harness.step import Step
from cenote.harness.symbols import symbol_of
from cenote_worker.history.dependencies import written
from cenote_worker.history.step import START, StepRecord
from cenote_worker.results import VariableInfo
from cenote_worker.trace import ABSENT, ValueKind, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVariable:
    """step: who wrote it last, as far as is known; 0 for what was there at the start, None when nobody knows.

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


def moment(past: Past, number: int) -> Moment:
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


def _described(past: Past, line: list[StepRecord]) -> tuple[dict[str, VariableInfo], tuple[int, ...]]:
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
