"""The measures, in the order of the report."""

from __future__ import annotations

from benchmarks.runtime.measure import Measure
from benchmarks.runtime.measures import busy, crowd, flood, hand_over, idle, round_trip, start, transfer

MEASURES: tuple[Measure, ...] = (
    *start.MEASURES,
    *round_trip.MEASURES,
    *transfer.MEASURES,
    *hand_over.MEASURES,
    *idle.MEASURES,
    *crowd.MEASURES,
    *busy.MEASURES,
    *flood.MEASURES,
)
