"""Metrics of a platform: what its machines report with their audit events, and what only the gateway sees.

Counters begin at 0 with the gateway. Nothing here calls a machine, and an answer costs one database query: sums over
whole tables and the sizes of folders are cached.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cenote.doors.metrics import OF_SERVERS, MetricSample, counted
from cenote.gateway.audit.collector import Reports
from cenote.gateway.store.stores import Stores
from cenote_security.errors import (
    CenoteError,
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from cenote_worker.process.metrics import (
    CLIENTS,
    DURABLE,
    OF_RUNTIMES,
    QUOTA_REFUSALS,
    RUNTIMES,
    Counts,
    Key,
    Metric,
    MetricsSnapshot,
    keys_of,
)
from cenote_worker.tenancy.audit_events import CellAuditEvent, EventBatch
from cenote_worker.tenancy.shared_quota import SharedQuota

SIZED_FOR: Final = 60.0
"""Seconds for which folder sizes are cached."""

SIZED_SHARE: Final = 0.02
"""Largest share of the time spent on measuring folders: a store of millions of files takes a while."""

MOST_SOURCES: Final = 10_000
"""Processes whose counts are remembered, those that have ended included."""

_NANO: Final = 1e9

REQUESTS: Final = Metric(
    "requests",
    "counter",
    "Calls and streams of clients at the gateway that ended, by what came of them; cancelled: the client left.",
    {"outcome": ("ok", "unauthenticated", "quota", "rejected", "usage", "unavailable", "cancelled", "other")},
)
TOKENS: Final = Metric(
    "tokens", "counter", "Tokens of models, by what spent them.", {"spender": ("teams", "jobs")}
)
COST: Final = Metric(
    "cost_dollars", "counter", "US dollars for models, by what spent them.", {"spender": ("teams", "jobs")}
)
JOB_TASKS: Final = Metric(
    "job_tasks",
    "gauge",
    "Tasks of all jobs that are on record.",
    {"state": ("waiting", "running", "succeeded", "failed", "cancelled")},
)
QUEUE: Final = Metric(
    "queue_depth",
    "gauge",
    "What waits for its turn: runtimes to be made, forks, other slow work, entries of the audit log.",
    {"queue": ("starts", "forks", "slow_work", "audit")},
)
STATE_BYTES: Final = Metric(
    "state_bytes",
    "gauge",
    "What the platform has on its disk: records, audit log, states of durable runtimes.",
    {"part": ("records", "audit", "store")},
)
STATE_FREE: Final = Metric("state_free_bytes", "gauge", "What is free on that disk.")
UNHEARD: Final = Metric(
    "unrecorded_deeds", "counter", "Deeds on machines that the audit log will never have."
)
TENANT_CELLS: Final = Metric("tenant_cells", "counter", "Cells of a tenant that ended.", {"tenant": ()})
TENANT_CPU: Final = Metric(
    "tenant_cpu_seconds", "counter", "Processor time of a tenant's cells.", {"tenant": ()}
)

OF_PLATFORM: Final = (
    REQUESTS,
    TOKENS,
    COST,
    JOB_TASKS,
    QUEUE,
    STATE_BYTES,
    STATE_FREE,
    UNHEARD,
    TENANT_CELLS,
    TENANT_CPU,
)
"""For tokens that may see the machines; the platform's counterpart of OF_RUNTIMES."""

ALL: Final = (*OF_SERVERS, *OF_RUNTIMES, *OF_PLATFORM)

_COUNTERS: Final = tuple(metric for metric in (*OF_RUNTIMES, *OF_PLATFORM) if metric.kind != "gauge")

_OUTCOMES: Final = (
    (NotAuthenticatedError, "unauthenticated"),
    (QuotaExceededError, "quota"),
    (RejectedError, "rejected"),
    (UnavailableError, "unavailable"),
    (UsageError, "usage"),
)


def count_refusal(counts: Counts, error: CenoteError) -> None:
    """Counts a refused call. Refusals by machines are counted there."""
    counts.add(REQUESTS, next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "other"))
    if isinstance(error, QuotaExceededError) and error.quota not in [*SharedQuota]:
        counts.add(QUOTA_REFUSALS, error.quota)


class PlatformMetrics:
    """Metrics of one gateway. Thread-safe."""

    def __init__(
        self, stores: Stores, *, by_tenant: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """by_tenant: whether tenants are labels."""
        self._stores = stores
        self._counts = stores.counts
        self._by_tenant = by_tenant
        self._machines = _Machines(self._counts)
        self._spent = {spender: _Spent(self._counts, spender) for (spender,) in keys_of(TOKENS)}
        self._tasks: Counter[str] = Counter()
        self._sizes: Mapping[str, int] = {}
        self._lock = threading.Lock()
        self._clock = clock
        self._next_sizes = -float("inf")
        self.queues: dict[str, Callable[[], int]] = {"audit": lambda: stores.recorder.waiting}
        """Lengths of queues, by name."""

    def heard(self, reports: Reports) -> None:
        """Takes the latest reports of all machines."""
        self._machines.heard(reports)

    def wrote(self, deeds: EventBatch, after: int) -> None:
        """A batch was recorded. after: the number of the last event that was recorded before."""
        if deeds.lost:
            self._counts.add(UNHEARD, by=max(min(deeds.lost, deeds.first - 1 - after), 0))
        if not self._by_tenant:
            return
        for number, deed in enumerate(deeds.deeds, start=deeds.first):
            if number > after and isinstance(deed, CellAuditEvent):
                self._counts.add(TENANT_CELLS, deed.origin.tenant)
                self._counts.add(TENANT_CPU, deed.origin.tenant, by=deed.cpu)

    def samples(self) -> list[MetricSample]:
        """The current samples. Blocks for about a millisecond. Raises DatabaseUnavailableError."""
        return [*self._gauges(), *self._counters()]

    def look(self) -> None:
        """Refreshes the cached sums; call it periodically. Blocks. Raises DatabaseUnavailableError."""
        with self._lock:
            jobs = self._stores.job_tasks.sums_of_all()
            self._tasks = sum((sums.counts for sums in jobs.values()), Counter())
            self._spent["jobs"].found({job: (sums.tokens, sums.nanodollars) for job, sums in jobs.items()})
            self._spent["teams"].found(self._stores.teams.spent_of_all())
            if (began := self._clock()) >= self._next_sizes:
                self._sizes = _sizes(self._stores)
                ended = self._clock()
                self._next_sizes = ended + max(SIZED_FOR, (ended - began) / SIZED_SHARE)

    def _gauges(self) -> Iterator[MetricSample]:
        numbers, there = self._stores.runtimes.numbers(), self._machines.gauges()
        ready, asleep = (there[(RUNTIMES.name, state)] for state in ("ready", "hibernated"))
        stored = max(numbers.durable - there[(DURABLE.name,)], 0)
        states = {
            "starting": numbers.starting,
            "ready": ready,
            "hibernated": asleep + stored,
            "lost": max(numbers.made - ready - asleep - stored, 0),
        }
        for state, number in states.items():
            yield MetricSample(RUNTIMES, number, (state,))
        yield MetricSample(CLIENTS, there[(CLIENTS.name,)])
        for (state,) in keys_of(JOB_TASKS):
            yield MetricSample(JOB_TASKS, self._tasks[state], (state,))
        for name, waiting in self.queues.items():
            yield MetricSample(QUEUE, waiting(), (name,))
        for part, size in self._sizes.items():
            yield MetricSample(STATE_BYTES, size, (part,))
        with suppress(OSError):  # the health check reports it
            found = os.statvfs(self._stores.folder)
            yield MetricSample(STATE_FREE, found.f_bavail * found.f_frsize)

    def _counters(self) -> Iterator[MetricSample]:
        names: dict[str, str] = {}
        if self._by_tenant:
            names = {tenant.id: tenant.name for tenant in self._stores.tenants.all()}
        for sample in counted(_COUNTERS, self._counts.snapshot()):
            if "tenant" in sample.metric.labels:
                (tenant,) = sample.labels
                sample = MetricSample(sample.metric, sample.value, (names.get(tenant, tenant),))
            yield sample


class _Machines:
    """Sums the tables of all processes that host runtimes. Counters of a process that has ended stay in the sum."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._last: OrderedDict[str, MetricsSnapshot] = OrderedDict()
        """By source, the most recently heard last: a source that returns continues from its last snapshot."""
        self._sources: dict[str, list[str]] = {}
        """Sources of each machine in its last answer."""

    def heard(self, reports: Reports) -> None:
        with self._lock:
            for node, batches in reports.items():
                if batches is None:  # it may answer next time
                    continue
                for batch in batches:
                    self._take(batch.source, batch.counts)
                self._sources[node] = [batch.source for batch in batches]
            for node in self._sources.keys() - reports.keys():
                del self._sources[node]
            while len(self._last) > MOST_SOURCES:
                self._last.popitem(last=False)

    def _take(self, source: str, now: MetricsSnapshot) -> None:
        # A source that began before this gateway was counted by the previous one.
        first = now if now.began < self._counts.began else MetricsSnapshot()
        self._counts.take_in(now, self._last.pop(source, first))
        self._last[source] = now

    def gauges(self) -> Counter[Key]:
        """Summed over all machines that answered the last call."""
        found: Counter[Key] = Counter()
        with self._lock:
            for sources in self._sources.values():
                for source in sources:
                    found.update(self._last.get(source, MetricsSnapshot()).gauges)
        return found


class _Spent:
    """What teams or jobs have spent since this gateway started, computed from sums that go when they are removed."""

    def __init__(self, counts: Counts, spender: str) -> None:
        self._counts = counts
        self._spender = spender
        self._last: dict[str, tuple[int, int]] | None = None

    def found(self, now: Mapping[Any, tuple[int, int]]) -> None:
        """now: tokens and nanodollars, by team or job."""
        last = now if self._last is None else self._last
        highest: dict[str, tuple[int, int]] = {}
        for key, (tokens, nanodollars) in now.items():
            tokens_before, nanodollars_before = last.get(key, (0, 0))
            self._counts.add(TOKENS, self._spender, by=max(tokens - tokens_before, 0))
            self._counts.add(COST, self._spender, by=max(nanodollars - nanodollars_before, 0) / _NANO)
            # A team releases reservations, so the sum can fall.
            highest[key] = max(tokens, tokens_before), max(nanodollars, nanodollars_before)
        self._last = highest


def _sizes(stores: Stores) -> dict[str, int]:
    """Sizes in bytes of the folders on this machine."""
    found = {"audit": _size(stores.audit_folder)}
    if (file := stores.database.file) is not None:
        found["records"] = sum(map(_size, file.parent.glob(f"{file.name}*")))
    if (store := stores.states.folder) is not None:
        found["store"] = _size(store)
    return found


def _size(path: Path) -> int:
    if not path.is_dir():
        with suppress(OSError):
            return path.stat().st_size
        return 0
    size = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):  # removed just now
                size += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118  (of many files)
    return size
