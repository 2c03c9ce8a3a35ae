"""The measures, in the order of the report."""

from __future__ import annotations

from benchmarks.state.measure import Measure
from benchmarks.state.measures import cells, moves, recovery, sleep, storage

MEASURES: tuple[Measure, ...] = (
    *cells.MEASURES,
    *moves.MEASURES,
    *storage.MEASURES,
    *recovery.MEASURES,
    *sleep.MEASURES,
)
