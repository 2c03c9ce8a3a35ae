"""The measures, in the order of the report."""

from __future__ import annotations

from benchmarks.platform.measure import Measure
from benchmarks.platform.measures import clients, creation, hand_over, idle, pipeline, round_trip

MEASURES: tuple[Measure, ...] = (
    *round_trip.MEASURES,
    *creation.MEASURES,
    *hand_over.MEASURES,
    *clients.MEASURES,
    *idle.MEASURES,
    *pipeline.MEASURES,
)
