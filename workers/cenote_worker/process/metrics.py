"""Metrics: a plain table of counters and histograms, and the meaning of each.

No metrics library is loaded here. Each process that hosts runtimes has such a table; the gateway adds up those of all
machines, and the HTTP application writes them in the format of Prometheus.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Upper bounds of the buckets of a histogram of seconds; a last bucket has no bound."""

SHORT: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One of Cenote's metrics. name: without `cenote_`; of a counter, without `_total`. help: one sentence.

    labels: names, and for each all values that it can have; an empty tuple where these are names of machines or
    tenants, of which there are few. buckets: of a histogram.
    """

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name in queries; of a histogram without `_bucket`, `_sum` and `_count`."""
        return f"cenote_{self.name}_total" if self.kind == "counter" else f"cenote_{self.name}"


KILL_REASONS: Final = (
    "time",
    "memory",
    "disk",
    "processes",
    "output",
    "signal",
    "exit",
    "protocol",
    "outside",
    "other",
)

CELLS: Final = Metric(
    "cells",
    "counter",
    "Cells that ended, by what became of them.",
    {"outcome": ("ok", "failed", "rolled_back", "lost", "refused")},
)
CELL_SECONDS: Final = Metric(
    "cell_duration_seconds", "histogram", "Wall time of cells inside their jails.", buckets=SECONDS
)
CELL_OVERHEAD: Final = Metric(
    "cell_overhead_seconds",
    "histogram",
    "What cells took beside that: the way into the jail and back, with what is kept of the state.",
    buckets=SHORT,
)
KILLS: Final = Metric(
    "kills",
    "counter",
    "Cells that a limit, a signal or an exit has ended, by which.",
    {"reason": KILL_REASONS},
)
RERUN: Final = Metric("steps_reexecuted", "counter", "Steps that a patch, a build or a restore ran again.")
REUSED: Final = Metric("steps_reused", "counter", "Steps whose results were reused instead.")
HOST_CALLS: Final = Metric(
    "host_calls",
    "counter",
    "Calls of host functions by cells, by what the function does outside.",
    {"effect": ("pure", "idempotent", "external", "unrecorded")},
)
ROLLBACKS: Final = Metric("rollbacks", "counter", "Returns to a former state that clients asked for.")
ROLLBACK_SECONDS: Final = Metric(
    "rollback_seconds",
    "histogram",
    "Time from the wish for a rollback to its end, with what was in line before it.",
    buckets=SHORT,
)
STARTS: Final = Metric(
    "runtime_start_seconds",
    "histogram",
    "Time to a jail that can take cells, warm where its zygote had loaded its modules before.",
    {"start": ("warm", "cold")},
    SECONDS,
)
FORKS: Final = Metric("forks", "counter", "Branches that were made of runtimes.")
FORK_SECONDS: Final = Metric(
    "fork_seconds", "histogram", "Time of a fork, with all its branches.", buckets=SECONDS
)
EGRESS: Final = Metric(
    "egress_requests",
    "counter",
    "Requests of jails to reach the network, by what their proxy decided.",
    {"verdict": ("allowed", "refused")},
)
EGRESS_BYTES: Final = Metric(
    "egress_bytes", "counter", "Bytes of the connections that were allowed, both ways."
)
QUOTA_REFUSALS: Final = Metric(
    "quota_refusals",
    "counter",
    "What a tenant's quota did not allow, by quota; streams: calls of a tenant that are open at once.",
    {"quota": ("runtimes", "memory", "cpus", "cells", "stored", "teams", "jobs", "environments", "streams")},
)

RUNTIMES: Final = Metric(
    "runtimes",
    "gauge",
    "Runtimes of the tenant; of all tenants, for a token that may see the machines.",
    {"state": ("starting", "ready", "lost", "hibernated")},
)
CLIENTS: Final = Metric("clients", "gauge", "Clients of these runtimes, attached now or a moment ago.")
DURABLE: Final = Metric("durable_runtimes", "gauge", "Durable runtimes that some machine has now.")

OF_RUNTIMES: Final = (
    CELLS,
    CELL_SECONDS,
    CELL_OVERHEAD,
    KILLS,
    RERUN,
    REUSED,
    HOST_CALLS,
    ROLLBACKS,
    ROLLBACK_SECONDS,
    STARTS,
    FORKS,
    FORK_SECONDS,
    EGRESS,
    EGRESS_BYTES,
    QUOTA_REFUSALS,
)
"""Counted where runtimes are hosted."""

Key = tuple[str, ...]
"""The name of a metric, and the values of its labels in their order."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """ranges: the count in each bucket, the unbounded one last. sum: of all values."""

    ranges: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Counts at a moment. gauges: current values, never added up over time.

    began: the earliest time of the first count, in seconds since the epoch.
    """

    totals: Mapping[Key, float] = field(default_factory=dict)
    distributions: Mapping[Key, Distribution] = field(default_factory=dict)
    gauges: Mapping[Key, float] = field(default_factory=dict)
    began: float = field(default=0.0, compare=False)


class Counts:
    """Thread-safe. An entry costs about a microsecond. Only what has happened has an entry."""

    def __init__(self) -> None:
        self.began = time.time()
        self._lock = threading.Lock()
        self._totals: dict[Key, float] = {}
        self._ranges: dict[Key, list[int]] = {}
        self._sums: dict[Key, float] = {}
        self._gauges: dict[Key, float] = {}

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        key = (metric.name, *labels)
        with self._lock:
            self._totals[key] = self._totals.get(key, 0) + by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        key = (metric.name, *labels)
        with self._lock:
            ranges = self._ranges.get(key)
            if ranges is None:
                ranges = self._ranges[key] = [0] * (len(metric.buckets) + 1)
                self._sums[key] = 0.0
            ranges[bisect_left(metric.buckets, value)] += 1
            self._sums[key] += value

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        with self._lock:
            self._gauges[(metric.name, *labels)] = value

    def snapshot(self) -> MetricsSnapshot:
        with self._lock:
            distributions = {
                key: Distribution(tuple(ranges), self._sums[key]) for key, ranges in self._ranges.items()
            }
            return MetricsSnapshot(dict(self._totals), distributions, dict(self._gauges), self.began)

    def take_in(self, now: MetricsSnapshot, before: MetricsSnapshot) -> None:
        """Adds what another table has counted between two moments.

        It may be of another version of Cenote: metrics unknown to this one are left out.
        """
        with self._lock:
            for key, total in now.totals.items():
                more = total - before.totals.get(key, 0)
                if more > 0 and key in _RANGES:
                    self._totals[key] = self._totals.get(key, 0) + more
            for key, found in now.distributions.items():
                if len(found.ranges) == _RANGES.get(key):
                    nothing = Distribution((0,) * len(found.ranges), 0.0)
                    self._add(key, found, before.distributions.get(key, nothing))

    def _add(self, key: Key, now: Distribution, before: Distribution) -> None:
        own = self._ranges.setdefault(key, [0] * len(now.ranges))
        for place, (new, old) in enumerate(zip(now.ranges, before.ranges, strict=True)):
            own[place] += new - old
        self._sums[key] = self._sums.get(key, 0.0) + now.sum - before.sum


THIS_PROCESS: Final = Counts()
"""Counts of runtimes that a process hosts for itself, without a platform."""


def keys_of(metric: Metric) -> Iterator[tuple[str, ...]]:
    """The label values that a metric can have, where they are known: those without an entry are 0.

    One label at most has known values; none of Cenote's metrics has two.
    """
    if not metric.labels:
        yield ()
        return
    (values,) = metric.labels.values()
    for value in values:
        yield (value,)


_RANGES: Final = {
    (metric.name, *labels): len(metric.buckets) + 1 for metric in OF_RUNTIMES for labels in keys_of(metric)
}
"""The number of buckets of each series that runtimes can have."""
