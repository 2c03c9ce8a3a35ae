"""Curves of what all runtimes of a server do, from samples that the server takes itself."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote.doors.metrics import MetricSample
from cenote_security.errors import CenoteError
from cenote_worker.process.metrics import (
    CELLS,
    CLIENTS,
    EGRESS,
    KILLS,
    QUOTA_REFUSALS,
    RUNTIMES,
    STARTS,
    Distribution,
    Metric,
)

EVERY: Final = 10.0
"""Seconds between two samples."""

KEPT: Final = 360
"""Samples, of one hour; each has some hundred numbers."""

_WIDTH: Final = 600.0
_HEIGHT: Final = 100.0
"""Of a curve's picture, in its own units."""

_MEMORY: Final = Metric(
    "machine_memory", "gauge", "Memory in use on the machine of this server, by all programs."
)

FigureKey = tuple[str, ...]
"""Name of a metric, and the values of its labels."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A sample. at: seconds since the epoch. values: of histograms, the number of observations."""

    at: float
    values: Mapping[FigureKey, float]


class FigureHistory:
    """The latest samples of this server. Bounded; it ends with the process. Used on one event loop."""

    def __init__(self) -> None:
        self._samples: deque[Figures] = deque(maxlen=KEPT)

    def add(self, at: float, samples: Iterable[MetricSample]) -> None:
        values = {(one.metric.name, *one.labels): _number(one.value) for one in samples}
        self._samples.append(Figures(at, values))

    @property
    def samples(self) -> Sequence[Figures]:
        return tuple(self._samples)

    async def watch(self, figures: Callable[[], Iterable[MetricSample]]) -> None:
        """Takes samples for ever. A sample that cannot be taken, as without the database, leaves a gap."""
        while True:
            with suppress(CenoteError):
                taken = await asyncio.to_thread(lambda: [*figures(), *_of_the_machine()])
                self.add(time.time(), taken)
            await asyncio.sleep(EVERY)


def _number(value: float | Distribution) -> float:
    return float(sum(value.ranges)) if isinstance(value, Distribution) else float(value)


def _of_the_machine() -> Iterable[MetricSample]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    sizes = {name: 1024 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    if {"MemTotal", "MemAvailable"} <= sizes.keys():
        yield MetricSample(_MEMORY, sizes["MemTotal"] - sizes["MemAvailable"])


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart. points: for SVG, one text for each part between gaps. last, most: values; NaN for none."""

    label: str
    points: tuple[str, ...]
    last: float
    most: float


@dataclass(frozen=True, slots=True)
class Chart:
    """unit: `bytes`, `per minute`, or empty for plain numbers. top: the value at the upper edge."""

    title: str
    unit: str
    top: float
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class ChartPlan:
    """What a chart shows: each series of a metric. Of counters and histograms, the rate."""

    title: str
    metric: Metric
    unit: str = ""

    @property
    def is_rate(self) -> bool:
        return self.metric.kind != "gauge"


PLANS: Final = (
    ChartPlan("Runtimes by state", RUNTIMES),
    ChartPlan("Clients", CLIENTS),
    ChartPlan("Memory in use on this machine", _MEMORY, "bytes"),
    ChartPlan("Cells by outcome", CELLS, "per minute"),
    ChartPlan("Starts of jails", STARTS, "per minute"),
    ChartPlan("Kills by reason", KILLS, "per minute"),
    ChartPlan("Requests to the network", EGRESS, "per minute"),
    ChartPlan("Refusals by quota", QUOTA_REFUSALS, "per minute"),
)


def chart(plan: ChartPlan, samples: Sequence[Figures]) -> Chart:
    """Series that were zero all the time are left out, unless all were."""
    series = {
        labels: (_rates if plan.is_rate else _values)(samples, (plan.metric.name, *labels))
        for labels in _labels(plan.metric, samples)
    }
    busy = {labels: values for labels, values in series.items() if any(value > 0 for value in values)}
    shown = busy or dict(list(series.items())[:1])
    top = max((value for values in shown.values() for value in values if not math.isnan(value)), default=0.0)
    curves = [_curve(labels, values, samples, top) for labels, values in shown.items()]
    return Chart(plan.title, plan.unit, top, tuple(curves))


def _labels(metric: Metric, samples: Sequence[Figures]) -> list[FigureKey]:
    """In the order of the metric's definition."""
    found = {key[1:] for sample in samples[-1:] for key in sample.values if key[0] == metric.name}
    order = [value for values in metric.labels.values() for value in values]
    return sorted(
        found, key=lambda labels: [order.index(label) if label in order else -1 for label in labels]
    )


def _values(samples: Sequence[Figures], key: FigureKey) -> list[float]:
    return [sample.values.get(key, math.nan) for sample in samples]


def _rates(samples: Sequence[Figures], key: FigureKey) -> list[float]:
    """Per minute, since the sample before. A counter that fell has begun anew."""
    totals = _values(samples, key)
    rates = [math.nan]
    for before, after, first, then in zip(samples, samples[1:], totals, totals[1:], strict=False):
        elapsed = after.at - before.at
        rates.append(max(then - first, 0.0) / elapsed * 60 if elapsed > 0 else math.nan)
    return rates[: len(samples)]


def _curve(labels: FigureKey, values: Sequence[float], samples: Sequence[Figures], top: float) -> Curve:
    begin, end = samples[0].at, samples[-1].at
    parts: list[list[str]] = [[]]
    last_at = begin
    for sample, value in zip(samples, values, strict=True):
        if math.isnan(value) or sample.at - last_at > 3 * EVERY:
            parts.append([])
        if not math.isnan(value):
            x = _WIDTH * (sample.at - begin) / (end - begin) if end > begin else _WIDTH
            y = _HEIGHT - (_HEIGHT - 4) * (value / top if top else 0) - 2
            parts[-1].append(f"{x:.1f},{y:.1f}")
        last_at = sample.at
    known = [value for value in values if not math.isnan(value)]
    return Curve(
        label=" ".join(labels),
        points=tuple(" ".join(part) for part in parts if part),
        last=known[-1] if known else math.nan,
        most=max(known, default=math.nan),
    )
