"""The runtime benchmark runs, from its command to its table and data."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.runtime.measures import MEASURES

ROOT = Path(__file__).resolve().parents[2]
RIVAL, RIVALS_LIBRARY = "smolagents local", "smolagents"


def run_quick(contender: str, data: Path) -> tuple[str, dict[str, list[dict[str, str]]]]:
    command = [sys.executable, "-m", "benchmarks", "runtime", "--quick", "--contender", contender]
    done = subprocess.run(
        [*command, "--json", str(data)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=110
    )
    return done.stdout, json.loads(data.read_text())


@pytest.mark.parametrize("contender", [pytest.param("cenote bare", marks=pytest.mark.long), "plain exec"])
def test_every_measure_gives_figures(contender: str, tmp_path: Path) -> None:
    """With tiny sizes each measure of a contender ends with figures, in the table as in the data."""
    table, data = run_quick(contender, tmp_path / "data.json")
    expected = [m.name for m in MEASURES if not m.only or contender in m.only]
    assert [(name, "measured", "") for name in expected] == [
        (s["measure"], s["outcome"], s["reason"]) for s in data["samples"]
    ]
    assert all(f"{name}: " in table for name in expected)


@pytest.mark.skipif(find_spec(RIVALS_LIBRARY) is not None, reason="the rival is installed here")
def test_a_library_that_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    """The benchmark runs without the rivals; their lines say why they are empty."""
    _, data = run_quick(RIVAL, tmp_path / "data.json")
    assert {"not installed"} == {s["outcome"] for s in data["samples"]}
