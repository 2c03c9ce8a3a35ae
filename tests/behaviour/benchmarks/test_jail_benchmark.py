"""The benchmark of the jail runs, from its command to its table and data."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.jail.rounds import TAKINGS, turns

ROOT = Path(__file__).resolve().parents[3]


def run_quick(data: Path, *sandboxes: str) -> tuple[str, dict[str, object]]:
    chosen = [word for name in sandboxes for word in ("--sandbox", name)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "jail", "--quick", *chosen, "--json", str(data)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    return done.stdout, json.loads(data.read_text())


@pytest.mark.slow
def test_every_measure_gives_figures(tmp_path: Path) -> None:
    """In the table and in the data: the cost of strict isolation is judged, other levels are open."""
    names = ["no sandbox", "cenote none", "cenote strict"]
    table, data = run_quick(tmp_path / "data.json", *names)
    samples = data["samples"]
    assert isinstance(samples, list)
    assert sorted((measure, name) for measure in TAKINGS for name in names) == sorted(
        (s["measure"], s["contender"]) for s in samples
    )
    assert [] == [s for s in samples if not all(is_figure(*each) for each in s["figures"].items())]
    assert 0 == len([line for line in table.splitlines() if line.startswith("open") and "strict" in line])


def is_figure(name: str, value: float) -> bool:
    """The CPU time of so little work may be below that of an empty cell; then it is left out."""
    return math.isfinite(value) and (value > 0 or name == "CPU")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sandlock") is not None, reason="the rival is installed here")
def test_a_rival_that_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    """The benchmark runs without it."""
    table, data = run_quick(tmp_path / "data.json", "no sandbox", "sandlock")
    assert {"sandlock": "No module named 'sandlock'"} == data["absent"]
    assert "sandlock does not run here: No module named 'sandlock'" in table


def test_another_one_begins_each_round() -> None:
    """A B C, then B C A: none is always first."""
    assert [list("ABC"), list("BCA"), list("CAB"), list("ABC")] == [
        turns("ABC", number) for number in range(4)
    ]
