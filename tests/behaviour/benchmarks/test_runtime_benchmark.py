"""The runtime benchmark runs, from its command to its table and data."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.runtime.contenders import load_contender
from benchmarks.runtime.driver import take_sample
from benchmarks.runtime.measure import Measure
from benchmarks.runtime.measures import MEASURES
from benchmarks.runtime.parameters import QUICK

ROOT = Path(__file__).resolve().parents[3]
PLAIN = "plain exec"
RIVAL, RIVALS_LIBRARY = "smolagents local", "smolagents"


def run_quick(data: Path, contender: str, *measures: str) -> tuple[str, list[dict[str, str]]]:
    chosen = [word for name in measures for word in ("--measure", name)]
    command = [sys.executable, "-m", "benchmarks", "runtime", "--quick", "--contender", contender]
    done = subprocess.run(
        [*command, *chosen, "--json", str(data)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    return done.stdout, json.loads(data.read_text())["samples"]


def offered(contender: str) -> list[Measure]:
    return [measure for measure in MEASURES if not measure.only or contender in measure.only]


@pytest.mark.sweep
@pytest.mark.parametrize("measure", offered(PLAIN), ids=lambda measure: measure.name)
def test_every_measure_gives_figures(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tiny sizes, in the way the process that takes a sample does it."""
    monkeypatch.setenv("BENCH_SCRATCH", str(tmp_path))
    answer = take_sample(lambda: measure.run(load_contender(PLAIN), QUICK))
    assert ("measured", "") == (answer.outcome, answer.reason)
    assert answer.figures


@pytest.mark.parametrize(
    ("contender", "names"),
    [
        (PLAIN, ["assign", "flood"]),
        pytest.param("cenote bare", [m.name for m in offered("cenote bare")], marks=pytest.mark.long),
    ],
)
def test_the_command_takes_samples(contender: str, names: list[str], tmp_path: Path) -> None:
    """Each measure gives figures, in the table and in the data."""
    table, samples = run_quick(tmp_path / "data.json", contender, *names)
    assert [(name, "measured", "") for name in names] == [
        (s["measure"], s["outcome"], s["reason"]) for s in samples
    ]
    assert all(f"{name}: " in table for name in names)


@pytest.mark.skipif(find_spec(RIVALS_LIBRARY) is not None, reason="the rival is installed here")
def test_a_library_that_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    """The benchmark runs without the rivals; their lines give the reason."""
    _, samples = run_quick(tmp_path / "data.json", RIVAL, "assign")
    assert ["not installed"] == [s["outcome"] for s in samples]
