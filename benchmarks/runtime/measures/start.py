"""Time from the constructor to the first result: cold for the first runtime of a process, warm for later ones."""

from __future__ import annotations

import statistics
from functools import partial

from benchmarks.runtime.contender import Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.stopwatch import repeat, seconds


def _first_result(kind: type[Contender], cell: str, kept: list[Contender]) -> None:
    contender = kind()
    contender.execute(cell)
    kept.append(contender)


def time_starts(kind: type[Contender], parameters: Parameters, *, cell: str) -> dict[str, float]:
    """Runtimes stay open until the end, so that closing one is not counted as starting the next."""
    kept: list[Contender] = []
    try:
        cold = seconds(partial(_first_result, kind, cell, kept))
        warm = repeat(partial(_first_result, kind, cell, kept), parameters.starts)
    finally:
        for contender in kept:
            contender.close()
    return {"cold": cold, "warm": statistics.median(warm)}


_FIGURES = {"cold": Unit.SECONDS, "warm": Unit.SECONDS}

MEASURES = (
    Measure(
        name="start",
        title="constructor to the result of `x = 1`",
        run=partial(time_starts, cell="x = 1"),
        figures=_FIGURES,
    ),
    Measure(
        name="start-pandas",
        title="constructor to the result of `import pandas`",
        run=partial(time_starts, cell="import pandas"),
        figures=_FIGURES,
    ),
)
