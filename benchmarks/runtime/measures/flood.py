"""A cell that prints far more than is kept."""

from __future__ import annotations

from contextlib import closing
from functools import partial

from benchmarks.runtime.contender import Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.process_tree import forget_peak, peak_memory
from benchmarks.runtime.stopwatch import seconds

LINE = 1000


def weigh_flood(kind: type[Contender], parameters: Parameters, *, large: bool) -> dict[str, float]:
    """`client memory` is the growth of the calling process's peak while the cell printed."""
    size = parameters.large_flood if large else parameters.flood
    cell = f"line = 'x' * {LINE - 1}\nfor i in range({size // LINE}):\n    print(line)"
    with closing(kind()) as contender:
        contender.execute("print('warm')")
        forget_peak()
        before = peak_memory()
        time = seconds(partial(contender.execute, cell))
        return {"time": time, "client memory": peak_memory() - before}


_FIGURES = {"time": Unit.SECONDS, "client memory": Unit.BYTES}

MEASURES = (
    Measure(
        name="flood",
        title="a cell that prints 100 MB in lines",
        run=partial(weigh_flood, large=False),
        figures=_FIGURES,
        limit=60.0,
        rounds=2,
    ),
    Measure(
        name="large-flood",
        title="a cell that prints 10 GB in lines",
        run=partial(weigh_flood, large=True),
        figures=_FIGURES,
        rounds=1,
        limit=300.0,
        only=("cenote",),
    ),
)
