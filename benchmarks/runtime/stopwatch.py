"""Timing of calls, and the two summaries of a sample."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def repeat(call: Callable[[], object], times: int) -> list[float]:
    return [seconds(call) for _ in range(times)]


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that `percent` of all samples do not exceed (nearest rank)."""
    ordered = sorted(samples)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def p50_p99(samples: Sequence[float]) -> dict[str, float]:
    return {"p50": statistics.median(samples), "p99": percentile(samples, 99)}
