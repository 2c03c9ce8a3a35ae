"""Reduces samples to one figure per contender: medians over rounds, and ratios within rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.runtime.sample import Sample

Key = tuple[str, str, str]
"""measure, figure, contender"""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One figure of one contender.

    ratio: median over rounds of this contender's value over the reference's in the same round, so that a slowdown
    of a whole round cancels out; None if the reference has no positive value.
    """

    median: float
    low: float
    high: float
    rounds: int
    ratio: float | None


def summarise(samples: Iterable[Sample], reference: str) -> dict[Key, Summary]:
    values = _by_round(samples)
    return {
        key: _summary(rounds, values.get((key[0], key[1], reference), {})) for key, rounds in values.items()
    }


def _by_round(samples: Iterable[Sample]) -> dict[Key, dict[int, float]]:
    values: dict[Key, dict[int, float]] = {}
    for sample in samples:
        for figure, value in sample.figures.items():
            values.setdefault((sample.measure, figure, sample.contender), {})[sample.round] = value
    return values


def _summary(rounds: Mapping[int, float], reference: Mapping[int, float]) -> Summary:
    ratios = [value / reference[number] for number, value in rounds.items() if reference.get(number, 0.0) > 0]
    return Summary(
        median=statistics.median(rounds.values()),
        low=min(rounds.values()),
        high=max(rounds.values()),
        rounds=len(rounds),
        ratio=statistics.median(ratios) if ratios else None,
    )
