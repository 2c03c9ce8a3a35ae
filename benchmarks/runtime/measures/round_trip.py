"""Round trip of one small cell."""

from __future__ import annotations

from contextlib import closing
from functools import partial

from benchmarks.runtime.contender import CellFailedError, Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.stopwatch import p50_p99, repeat

WARM_UP = 20


def time_cell(kind: type[Contender], parameters: Parameters, *, cell: str, printed: str) -> dict[str, float]:
    with closing(kind()) as contender:
        repeat(partial(contender.execute, cell), WARM_UP)
        if (seen := contender.execute(cell)) != printed:
            raise CellFailedError(f"{cell!r} printed {seen!r}")
        return p50_p99(repeat(partial(contender.execute, cell), parameters.round_trips))


_FIGURES = {"p50": Unit.SECONDS, "p99": Unit.SECONDS}

MEASURES = (
    Measure(
        name="assign",
        title="round trip of `x = 1`",
        run=partial(time_cell, cell="x = 1", printed=""),
        figures=_FIGURES,
    ),
    Measure(
        name="print",
        title="round trip of `print('hello')`",
        run=partial(time_cell, cell="print('hello')", printed="hello\n"),
        figures=_FIGURES,
    ),
)
