"""Who last wrote something, and with which statement."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.harness.past import Past
from cenote.harness.statements import last_writer
from cenote.harness.step import Step
from cenote.harness.symbols import location_of
from cenote_worker.history.step import StepRecord
from cenote_worker.results import Span
from cenote_worker.trace import ABSENT, Location, key_of, kind_of


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


def blame(past: Past, symbol: str, end: int) -> Blame:
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
