"""What came of something: the steps and symbols that depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.harness.past import Past
from cenote.harness.symbols import location_of, symbol_of
from cenote_worker.history.dependencies import Inputs, located, looked_at, written
from cenote_worker.history.step import START, StepRecord
from cenote_worker.trace import Location


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


def of_step(past: Past, number: int, end: int) -> Dependents:
    """Of a step, on the line to `end`."""
    past.check(number)
    search = _Search(past, end)
    search.seed(number)
    return search.found()


def of_symbol(past: Past, symbol: str, end: int) -> Dependents:
    """Of what a symbol holds at the end of the line. Raises UnknownNameError, see Past.writer."""
    location = location_of(symbol)
    record, doubtful = past.writer(location, end)
    search = _Search(past, end, location, record.number if record is not None else START)
    for each in doubtful:
        search.doubt(each)
    return search.found()


class _Search:
    """Along one line, from its beginning: whoever is reached was added before."""

    def __init__(self, past: Past, end: int, location: Location | None = None, writer: int = START) -> None:
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
