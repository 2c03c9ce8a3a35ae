"""Cost of isolation: figures of a sandbox compared with the same sandbox without it, in the same rounds. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.runtime.sample import Sample


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One figure of one sandbox over all rounds, in seconds.

    added, ratio: medians over rounds of the difference and of the quotient to another sandbox in the same round;
    None if there was no other.
    """

    median: float
    least: float
    added: float | None
    ratio: float | None


def cost(samples: Sequence[Sample], measure: str, figure: str, contender: str, other: str) -> Cost | None:
    """None when the sandbox has no such figure."""
    mine = _by_round(samples, measure, figure, contender)
    theirs = _by_round(samples, measure, figure, other)
    if not mine:
        return None
    pairs = [(mine[number], theirs[number]) for number in mine.keys() & theirs.keys()]
    return Cost(
        median=statistics.median(mine.values()),
        least=min(mine.values()),
        added=statistics.median(one - another for one, another in pairs) if pairs else None,
        ratio=statistics.median(one / another for one, another in pairs) if pairs else None,
    )


def _by_round(samples: Sequence[Sample], measure: str, figure: str, contender: str) -> dict[int, float]:
    return {
        sample.round: sample.figures[figure]
        for sample in samples
        if (sample.measure, sample.contender) == (measure, contender) and figure in sample.figures
    }
