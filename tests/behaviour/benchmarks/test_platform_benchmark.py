"""The benchmark of the platform runs, from its command to its table and data; Ray runs on request only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from benchmarks.platform.goals import GOALS
from benchmarks.platform.measures import MEASURES
from benchmarks.platform.parameters import QUICK
from benchmarks.platform.services.codecs import JSON_LIMIT, Json
from benchmarks.platform.session import Driven
from benchmarks.runtime.contender import NotOfferedError
from benchmarks.runtime.goals import Goal
from benchmarks.runtime.process_tree import live_descendants
from benchmarks.runtime.summary import Summary

ROOT = Path(__file__).resolve().parents[3]
OVER = Goal(text="", measure="m", figure="further", rival="r", rival_figure="first", times_better=100)


def run_quick(data: Path, service: str, *measures: str) -> tuple[str, list[dict[str, str]]]:
    chosen = [word for name in measures for word in ("--measure", name)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", "platform", "--quick", "--service", service),
            *(*chosen, "--json", str(data)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    return done.stdout, json.loads(data.read_text())["samples"]


@pytest.mark.slow
def test_measures_give_figures(tmp_path: Path) -> None:
    """In the table and in the data."""
    names = ["assign", "create", "array-small", "clients-few", "idle"]
    table, samples = run_quick(tmp_path / "data.json", "cloudpickle over gRPC", *names)
    assert [(name, "measured", "") for name in names] == [
        (s["measure"], s["outcome"], s["reason"]) for s in samples
    ]
    assert all(f"{name}: " in table for name in names)


@pytest.mark.slow
def test_what_a_service_has_no_way_for_is_said(tmp_path: Path) -> None:
    """JSON has no frames; that is not a failure."""
    _, samples = run_quick(tmp_path / "data.json", "json over gRPC", "frame-large")
    assert ["not offered"] == [s["outcome"] for s in samples]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("kernel_gateway") is not None, reason="the rival is installed here")
def test_a_library_that_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    """The benchmark runs without the rivals; their lines give the reason."""
    _, samples = run_quick(tmp_path / "data.json", "kernel gateway", "assign")
    assert ["not installed"] == [s["outcome"] for s in samples]


@pytest.mark.long
def test_actors_are_placed_where_machines_are(tmp_path: Path) -> None:
    """Not on the second machine of a finished measure, which Ray still considered alive."""
    _, samples = run_quick(tmp_path / "data.json", "ray actors", "far-array-small", "clients-few")
    assert [("measured", ""), ("measured", "")] == [(s["outcome"], s["reason"]) for s in samples]


@pytest.mark.slow
def test_nothing_is_left_of_a_driver_that_takes_too_long() -> None:
    """Neither the driver nor the servers that it started remain."""
    before = live_descendants(os.getpid())
    with Driven("cloudpickle over gRPC", replace(QUICK, creations=(0, 10_000))) as driven:
        assert "no answer within 2 s" == driven.ask("create", limit=2.0).reason
    assert set() == live_descendants(os.getpid()) - before


def test_every_goal_is_about_a_figure_that_is_measured() -> None:
    """Otherwise the goal would always be open."""
    figures = {(measure.name, figure) for measure in MEASURES for figure in measure.figures}
    assert set() == {(goal.measure, goal.figure) for goal in GOALS} - figures
    assert set() == {(goal.measure, goal.rival_figure) for goal in GOALS if goal.rival_figure} - figures


@pytest.mark.parametrize(("verdict", "theirs"), [("reached", 0.1), ("missed", 0.099), ("open", None)])
def test_a_goal_may_compare_two_figures(verdict: str, theirs: float | None) -> None:
    """Cenote's figure is a hundred times better than another one of the rival's, or not; open if one is missing."""
    summaries = {("m", "further", "cenote"): summary(0.001)}
    if theirs is not None:
        summaries["m", "first", "r"] = summary(theirs)
    assert verdict == OVER.verdict(summaries)


def summary(median: float) -> Summary:
    return Summary(median=median, low=median, high=median, rounds=1, ratio=None)


@pytest.mark.slow
def test_json_takes_arrays_up_to_a_size() -> None:
    """A value at the limit is written, one number more is refused."""
    values = np.zeros(JSON_LIMIT // 8, dtype="float64")
    assert values.size == len(np.asarray(Json().decode(Json().encode(values))))
    with pytest.raises(NotOfferedError):
        Json().encode(np.zeros(JSON_LIMIT // 8 + 1, dtype="float64"))
