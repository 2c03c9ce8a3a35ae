"""How a gateway adds up its machines' counters: each event once, across restarts of either."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.behaviour.gateway.test_gateway_server import SlowNodes
from tests.support.gateway.world import User, World, refused
from tests.waiting import until

from cenote.gateway.api.metrics import REQUESTS, PlatformMetrics
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.quota import Quota
from cenote_worker.process.metrics import (
    CELL_SECONDS,
    CELLS,
    QUOTA_REFUSALS,
    RUNTIMES,
    Counts,
    Metric,
    MetricsSnapshot,
    keys_of,
)
from cenote_worker.tenancy.audit_events import EventBatch


@pytest.fixture
def older() -> Counts:
    """A process that started before the gateway."""
    return Counts()


@pytest.fixture
def stores(older: Counts, tmp_path: Path) -> Iterator[Stores]:
    with Stores(StateFolder(path=tmp_path / "state")) as made:
        yield made


@pytest.fixture
def metrics(stores: Stores) -> PlatformMetrics:
    return PlatformMetrics(stores)


def batch(counts: Counts, source: str = "n1/1") -> EventBatch:
    return EventBatch(source=source, first=1, deeds=(), counts=counts.snapshot())


def value(metrics: PlatformMetrics, metric: Metric, *labels: str) -> object:
    (found,) = (
        sample.value for sample in metrics.samples() if sample.metric is metric and sample.labels == labels
    )
    return found


def test_a_process_that_is_away_for_a_moment_is_counted_once(metrics: PlatformMetrics) -> None:
    """Its machine's agent restarts and does not know it yet; then its machine is missing."""
    process = Counts()
    process.add(CELLS, "ok", by=5)
    metrics.heard({"n1": [batch(process)]})
    metrics.heard({"n1": []})
    metrics.heard({"n1": [batch(process)]})
    metrics.heard({})
    process.add(CELLS, "ok")
    metrics.heard({"n1": [batch(process)]})
    assert 6 == value(metrics, CELLS, "ok")


def test_what_was_counted_before_the_gateway_is_not_counted_again(
    older: Counts, metrics: PlatformMetrics
) -> None:
    """Also where the machine does not answer a gateway that restarts at once."""
    older.add(CELLS, "ok", by=1000)
    metrics.heard({"n1": None})
    metrics.heard({"n1": [batch(older)]})
    assert 0 == value(metrics, CELLS, "ok")
    older.add(CELLS, "ok")
    metrics.heard({"n1": [batch(older)]})
    assert 1 == value(metrics, CELLS, "ok")


def test_the_first_events_of_a_new_process_are_counted(metrics: PlatformMetrics) -> None:
    """All of them, also those of the first process that a gateway sees."""
    process = Counts()
    process.add(CELLS, "ok")
    metrics.heard({"n1": [batch(process)]})
    assert 1 == value(metrics, CELLS, "ok")


def test_gauges_are_of_what_is_there(metrics: PlatformMetrics, stores: Stores) -> None:
    """A machine that does not answer keeps its last values; the values of one that is gone are dropped."""
    one, other = Counts(), Counts()
    one.set(RUNTIMES, 2, "ready")
    other.set(RUNTIMES, 3, "ready")
    metrics.heard({"n1": [batch(one)], "n2": [batch(other, "n2/1")]})
    assert 5 == value(metrics, RUNTIMES, "ready")
    metrics.heard({"n1": None, "n2": [batch(other, "n2/1")]})
    assert 5 == value(metrics, RUNTIMES, "ready")
    metrics.heard({"n2": [batch(other, "n2/1")]})
    assert 3 == value(metrics, RUNTIMES, "ready")


def test_a_machine_of_another_version_breaks_nothing(metrics: PlatformMetrics) -> None:
    """It has other ranges, other labels and other metrics, or reports none at all."""
    process = Counts()
    process.observe(Metric(CELL_SECONDS.name, "histogram", "Other.", buckets=(1.0,)), 0.5)
    process.add(CELLS, "of another kind")
    process.add(Metric("unknown", "counter", "Other."))
    process.add(CELLS, "ok")
    metrics.heard({"n1": [batch(process)]})
    assert 1 == value(metrics, CELLS, "ok")
    labels = {sample.labels for sample in metrics.samples() if sample.metric is CELLS}
    assert ("of another kind",) not in labels
    seconds = value(metrics, CELL_SECONDS)
    assert len(CELL_SECONDS.buckets) + 1 == len(getattr(seconds, "ranges"))  # noqa: B009


def test_each_call_is_counted_by_what_came_of_it(make_world: Callable[..., World]) -> None:
    """Also where the client disconnects, and where the outcome is unknown."""
    gate = threading.Event()
    nodes = SlowNodes(gate)
    world = make_world(nodes=nodes)
    acme = world.user("acme")
    counts = world.stores.counts

    def outcomes() -> dict[str, float]:
        return {key[1]: total for key, total in counts.snapshot().totals.items() if key[0] == REQUESTS.name}

    acme.describe()
    until(lambda: outcomes() == {"ok": 1})
    leaving = acme.creation("etl")
    until(lambda: bool(nodes.made))
    assert leaving.cancel()
    until(lambda: outcomes() == {"ok": 1, "cancelled": 1})
    gate.set()
    refused(lambda: acme.creation("no name").result())
    until(lambda: outcomes() == {"ok": 1, "cancelled": 1, "usage": 1})
    refused(lambda: User(acme.address, "cnt_no_token", acme.tenant).describe())
    until(lambda: outcomes() == {"ok": 1, "cancelled": 1, "usage": 1, "unauthenticated": 1})


@pytest.mark.parametrize(("takes", "most"), [(0.1, 10), (100.0, 1)])
def test_a_store_that_takes_long_to_look_through_is_looked_at_less(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, takes: float, most: int
) -> None:
    """The number of scans in ten minutes is limited: the sweep has other work to do."""
    now = 0.0
    looks: list[float] = []

    def sizes(_: Stores) -> dict[str, int]:
        nonlocal now
        looks.append(now)
        now += takes
        return {}

    monkeypatch.setattr("cenote.gateway.api.metrics._sizes", sizes)
    metrics = PlatformMetrics(stores, clock=lambda: now)
    for _ in range(600):
        metrics.look()
        now += 1.0
    assert most - 1 <= len(looks) <= most


def test_refusals_by_quotas_are_counted_where_they_are_decided(world: World) -> None:
    """By quota, once each: the gateway's own, and those that machines count."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.RUNTIMES, 1)
    world.stores.quotas.set_limit(acme.tenant, Quota.CELLS, 0)
    line = acme.line(acme.create("etl"))
    line.welcome()

    def refusals() -> dict[str, float]:
        totals = world.stores.counts.snapshot().totals
        return {key[1]: total for key, total in totals.items() if key[0] == QUOTA_REFUSALS.name}

    refused(lambda: acme.create("another"))
    until(lambda: refusals() == {"runtimes": 1})
    assert line.answer(line.cell("1")).HasField("failure")
    until(lambda: refusals() == {"runtimes": 1, "cells": 1})


def test_all_quotas_are_labels() -> None:
    assert {*Quota, "streams"} == {quota for (quota,) in keys_of(QUOTA_REFUSALS)}


def test_deeds_of_an_earlier_version_have_no_counts() -> None:
    """A process of such a machine continues under a newer gateway."""
    state = EventBatch(source="n1/1", first=1, deeds=()).__getstate__()
    found = EventBatch.__new__(EventBatch)
    found.__setstate__(state[:-1])
    assert MetricsSnapshot() == found.counts
    assert found == pickle.loads(pickle.dumps(found))
