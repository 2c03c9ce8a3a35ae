"""One small cell, from the client to the namespace and back."""

from __future__ import annotations

from contextlib import closing
from functools import partial

from benchmarks.platform.measure import Measure
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService
from benchmarks.runtime.contender import CellFailedError
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.stopwatch import p50_p99, repeat

CELL = "x = 1"
WARM_UP = 50


def time_cell(service: AnyService, parameters: Parameters) -> dict[str, float]:
    with closing(service.open()) as namespace:
        repeat(partial(namespace.execute, CELL), min(WARM_UP, parameters.round_trips))
        taken = repeat(partial(namespace.execute, CELL), parameters.round_trips)
        if (seen := namespace.execute("print(x)")) != "1\n":
            raise CellFailedError(f"x was {seen!r}")
        return p50_p99(taken)


MEASURES = (
    Measure(
        name="assign",
        title="round trip of `x = 1`",
        run=time_cell,
        figures={"p50": Unit.SECONDS, "p99": Unit.SECONDS},
    ),
)
