"""A server's metrics, in the text formats of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from cenote.connection import PlatformInfo, RuntimeInfo
from cenote_security.extras import importing
from cenote_worker.process.metrics import (
    CLIENTS,
    OF_RUNTIMES,
    RUNTIMES,
    THIS_PROCESS,
    Distribution,
    Metric,
    MetricsSnapshot,
    keys_of,
)

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

READY: Final = Metric("ready", "gauge", "Whether it can be used now: 1, else 0.")
BUILD_INFO: Final = Metric("build_info", "gauge", "What runs; always 1.", {"version": ()})
NODE_UP: Final = Metric("node_up", "gauge", "Whether a machine answers: 1, else 0.", {"node": ()})
NODE_RUNTIMES: Final = Metric(
    "node_runtimes", "gauge", "Runtimes on a machine, of all tenants.", {"node": ()}
)
NODE_REFERENCES: Final = Metric("node_references", "gauge", "Shared values on a machine.", {"node": ()})
NODE_REFERENCE_BYTES: Final = Metric(
    "node_reference_bytes", "gauge", "Size of the shared values on a machine.", {"node": ()}
)

OF_SERVERS: Final = (
    READY,
    BUILD_INFO,
    RUNTIMES,
    CLIENTS,
    NODE_UP,
    NODE_RUNTIMES,
    NODE_REFERENCES,
    NODE_REFERENCE_BYTES,
)
"""What `cenote up` and `cenote serve` report to each valid token, as far as it may see it."""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A metric's value, with the values of its labels in their order."""

    metric: Metric
    value: float | Distribution
    labels: tuple[str, ...] = ()


def of_tenant(runtimes: Sequence[RuntimeInfo]) -> Iterator[MetricSample]:
    """The metrics of what `cenote runtime ls` shows to the same token."""
    states = Counter[str](runtime.state for runtime in runtimes)
    for (state,) in keys_of(RUNTIMES):
        yield MetricSample(RUNTIMES, states[state], (state,))
    yield MetricSample(CLIENTS, sum(runtime.clients for runtime in runtimes))


def of_machines(info: PlatformInfo) -> Iterator[MetricSample]:
    """The metrics of what `cenote status` shows to a token that may see the machines."""
    for node in info.nodes:
        yield MetricSample(NODE_UP, not node.silent, (node.id,))
        yield MetricSample(NODE_RUNTIMES, node.runtimes, (node.id,))
        yield MetricSample(NODE_REFERENCES, node.references, (node.id,))
        yield MetricSample(NODE_REFERENCE_BYTES, node.reference_bytes, (node.id,))


def of_this_process(names: Sequence[str]) -> Iterator[MetricSample]:
    """For a server with runtimes of its own. names: of the open ones."""
    for (state,) in keys_of(RUNTIMES):
        yield MetricSample(RUNTIMES, len(names) if state == "ready" else 0, (state,))
    yield from counted(OF_RUNTIMES, THIS_PROCESS.snapshot())


def counted(metrics: Iterable[Metric], found: MetricsSnapshot) -> Iterator[MetricSample]:
    """All series of counters and histograms: those without any count are 0, so that rates begin with the first."""
    for metric in metrics:
        table = found.distributions if metric.kind == "histogram" else found.totals
        known = {key[1:] for key in table if key[0] == metric.name}
        nothing = Distribution((0,) * (len(metric.buckets) + 1), 0.0) if metric.kind == "histogram" else 0.0
        for labels in sorted({*known, *keys_of(metric)}):
            yield MetricSample(metric, table.get((metric.name, *labels), nothing), labels)


def exposition(samples: Iterable[MetricSample], accepted: str = "") -> tuple[bytes, str]:
    """The text, and its content type. accepted: the header of the client. Raises MissingExtraError."""
    with importing("/metrics", "http"):
        from prometheus_client.exposition import choose_encoder
    encode, content_type = choose_encoder(accepted)
    return encode(_Families(samples)), content_type


class _Families:
    """A registry in the form that the encoders need: metrics in the order of their names."""

    def __init__(self, samples: Iterable[MetricSample]) -> None:
        grouped: dict[str, list[MetricSample]] = {}
        for sample in samples:
            grouped.setdefault(sample.metric.full_name, []).append(sample)
        self._grouped = grouped

    def collect(self) -> Iterator[Family]:
        for _, samples in sorted(self._grouped.items()):
            yield _family(samples)


def _family(samples: Sequence[MetricSample]) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    metric = samples[0].metric
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: Any = kinds[metric.kind](f"cenote_{metric.name}", metric.help, labels=list(metric.labels))
    for sample in samples:
        if isinstance(sample.value, Distribution):
            family.add_metric(sample.labels, _buckets(metric, sample.value), sample.value.sum)
        else:
            family.add_metric(sample.labels, sample.value)
    return cast("Family", family)


def _buckets(metric: Metric, found: Distribution) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus requires."""
    total, buckets = 0, []
    for end, count in zip([*map(str, metric.buckets), "+Inf"], found.ranges, strict=True):
        total += count
        buckets.append((end, float(total)))
    return buckets
