"""What is counted of runtimes, and its text: each kind of event once, in formats that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from tests.support.forks.fixtures import by_value  # noqa: F401  (a fixture)

from cenote import PythonRuntime, SandboxPolicy
from cenote.doors.metrics import MetricSample, counted, exposition
from cenote.gateway.api.metrics import ALL
from cenote.harness import Patch
from cenote.runtime import Function
from cenote_worker.process.metrics import (
    CELL_SECONDS,
    CELLS,
    KILLS,
    OF_RUNTIMES,
    THIS_PROCESS,
    Counts,
    Metric,
    MetricsSnapshot,
    keys_of,
)


def since(before: MetricsSnapshot) -> dict[tuple[str, ...], float]:
    """What this process has counted since; histograms by their counts."""
    more = Counts()
    more.take_in(THIS_PROCESS.snapshot(), before)
    found = more.snapshot()
    return {
        **found.totals,
        **{key: float(sum(each.ranges)) for key, each in found.distributions.items() if sum(each.ranges)},
    }


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    functions = [Function(lambda number: number, name="ask", host=True, effect="pure")]
    with PythonRuntime(sandbox=SandboxPolicy(preload=()), functions=functions) as made:
        made.execute("warm = 1")
        yield made


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("x = 1", ("cells", "ok")),
        ("1 / 0", ("cells", "failed")),
        ("import os; os.kill(os.getpid(), 11)", ("cells", "rolled_back")),
        ("import os; os.kill(os.getpid(), 11)", ("kills", "signal")),
        ("import os; os.kill(os.getpid(), 9)", ("kills", "signal")),
        ("import os; os._exit(3)", ("kills", "exit")),
        ("while True: pass", ("kills", "time")),
        ("ask(1)", ("host_calls", "pure")),
        ("x = 1", ("cell_duration_seconds",)),
        ("x = 1", ("cell_overhead_seconds",)),
    ],
)
def test_a_cell_is_counted_once(runtime: PythonRuntime, code: str, key: tuple[str, ...]) -> None:
    """By its outcome, with its time, what ended it and what it called."""
    before = THIS_PROCESS.snapshot()
    runtime.execute(code, timeout=0.3 if "while" in code else None)
    found = since(before)
    assert 1 == found[key]
    assert 1 == sum(count for (name, *_), count in found.items() if name == "cells")


def test_errors_and_interrupts_are_no_kills(runtime: PythonRuntime) -> None:
    before = THIS_PROCESS.snapshot()
    runtime.execute("raise KeyboardInterrupt")
    runtime.execute("undefined_name")
    assert not [key for key in since(before) if key[0] == "kills"]


def test_states_that_are_gone_back_to_and_branches_are_counted(runtime: PythonRuntime) -> None:
    before = THIS_PROCESS.snapshot()
    step = runtime.execute("y = 1").step
    runtime.execute("y = 2")
    runtime.rollback(step)
    runtime.fork().close()
    found = since(before)
    for key in (("rollbacks",), ("rollback_seconds",), ("forks",), ("fork_seconds",)):
        assert 1 == found[key]
    assert 1 == found[("runtime_start_seconds", "warm")]
    assert 2 == found[("cells", "ok")]


def test_steps_that_a_patch_runs_again_and_those_it_does_not(runtime: PythonRuntime) -> None:
    first = runtime.execute("a = 1").step
    runtime.execute("other = 5")
    runtime.execute("b = a + 1")
    before = THIS_PROCESS.snapshot()
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(first, "a = 10", reason="another value")))
    found = since(before)
    assert len(result.steps_rerun) == found[("steps_reexecuted",)] == 2
    assert 1 <= found[("steps_reused",)] == len(result.steps_reused)


@pytest.mark.usefixtures("by_value")
def test_steps_that_a_restored_state_runs_again(tmp_path: Path) -> None:
    """What cannot be stored is recomputed: that does not count as another cell."""
    policy = SandboxPolicy(preload=(), snapshots="none")
    with PythonRuntime(store=tmp_path, name="r", sandbox=policy) as former:
        former.execute("numbers = (number for number in range(5))")
        former.execute("first = next(numbers)")
        former.checkpoint()
    before = THIS_PROCESS.snapshot()
    with PythonRuntime.restore(tmp_path, "r", sandbox=policy) as restored:
        assert "(0, 1)" == restored.execute("first, next(numbers)").value
    found = since(before)
    assert 2 == found[("steps_reexecuted",)]
    assert 1 == found[("cells", "ok")]


def test_a_jail_has_no_say_in_a_label(runtime: PythonRuntime) -> None:
    """Whatever a cell raises: labels have only the known values."""
    runtime.execute("class Odd(Exception): reason = 'x' * 100\nraise Odd")
    known = {(metric.name, *labels) for metric in OF_RUNTIMES for labels in keys_of(metric)}
    found = THIS_PROCESS.snapshot()
    assert {*found.totals, *found.distributions} <= known


@pytest.mark.parametrize("accepted", ["", "application/openmetrics-text; version=1.0.0"])
def test_the_text_is_what_prometheus_reads(accepted: str) -> None:
    """In both of its formats, with each possible series."""
    counts = Counts()
    counts.add(CELLS, "ok", by=3)
    counts.observe(CELL_SECONDS, 0.003)
    counts.observe(CELL_SECONDS, 1e9)
    text, kind = exposition(counted(OF_RUNTIMES, counts.snapshot()), accepted)
    assert kind.startswith("application/openmetrics-text" if accepted else "text/plain; version=0.0.4")
    families = {
        family.name: family for family in (read_openmetrics if accepted else read_text)(text.decode())
    }
    cells = {sample.labels["outcome"]: sample.value for sample in families["cenote_cells"].samples}
    assert {"ok": 3, "failed": 0, "rolled_back": 0, "lost": 0, "refused": 0} == cells
    seconds = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in families["cenote_cell_duration_seconds"].samples
    }
    assert 0 == seconds["cenote_cell_duration_seconds_bucket", "0.0025"]
    assert 1 == seconds["cenote_cell_duration_seconds_bucket", "0.005"]
    assert 1 == seconds["cenote_cell_duration_seconds_bucket", "300.0"]
    assert 2 == seconds["cenote_cell_duration_seconds_bucket", "+Inf"]
    assert 2 == seconds["cenote_cell_duration_seconds_count", None]
    assert len(OF_RUNTIMES) == len(families)


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    text, _ = exposition([MetricSample(Metric("odd", "gauge", "A test.", {"name": ()}), 1, (odd,))])
    (family,) = read_text(text.decode())
    assert odd == family.samples[0].labels["name"]


def test_tables_of_processes_add_up() -> None:
    """Each event once, however often a table is read; a table with other ranges is left out."""
    machine, gateway = Counts(), Counts()
    before = machine.snapshot()
    for number in range(3):
        machine.add(KILLS, "memory")
        machine.observe(CELL_SECONDS, number)
        now = machine.snapshot()
        gateway.take_in(now, before)
        gateway.take_in(now, now)
        before = now
    assert machine.snapshot() == gateway.snapshot()
    other = Counts()
    other.observe(Metric(CELL_SECONDS.name, "histogram", "", buckets=(1.0,)), 0.5)
    gateway.take_in(other.snapshot(), MetricsSnapshot())
    assert machine.snapshot() == gateway.snapshot()


def test_names_are_those_that_prometheus_wants() -> None:
    """One name, one metric; the unit is in the name; each has a description, and labels of one dimension."""
    names = [metric.full_name for metric in ALL]
    assert len(names) == len({*names})
    for metric in ALL:
        assert metric.help.endswith(".")
        assert len(metric.labels) <= 1
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert not metric.name.endswith("_total")
        if metric.kind == "histogram":
            assert metric.name.endswith("_seconds")
            assert sorted(metric.buckets) == list(metric.buckets)
