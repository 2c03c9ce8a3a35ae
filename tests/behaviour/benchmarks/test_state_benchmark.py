"""The benchmark of saved states: its states, its clock, its goals, and a run from the command to the table."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.state.cpu import Used, timed, used_between
from benchmarks.state.frame import State
from benchmarks.state.goals import GOALS
from benchmarks.state.keepers import KEEPERS
from benchmarks.state.measures import MEASURES

ROOT = Path(__file__).resolve().parents[3]


def told(namespace: dict[str, object], *cells: str) -> str:
    """The output of the last of some cells."""
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(cell, namespace)
    return printed.getvalue()


@pytest.mark.parametrize("named", [False, True])
def test_a_change_of_the_state_shows_in_a_look(named: bool) -> None:
    """Making it again gives the same look, so that a state that was not preserved is detected."""
    state, namespace = State(size=80_000, columns=100, named=named), {}
    made = told(namespace, state.making, state.look)
    changed = told(namespace, state.changing(1, seed=2), state.look)
    assert made != changed
    assert made == told(namespace, state.making, state.look)


def test_a_hundredth_of_the_columns_is_one_of_a_hundred() -> None:
    """The other columns keep their numbers."""
    state, namespace = State(size=80_000, columns=100, named=True), {}
    told(namespace, state.making)
    before = {name: float(namespace[name].sum()) for name in (f"c{n}" for n in range(100))}
    told(namespace, state.changing(1, seed=2))
    assert ["c0"] == [name for name, total in before.items() if float(namespace[name].sum()) != total]


def test_cpu_of_children_that_have_ended_counts() -> None:
    """Time without computing does not count."""
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    _, _, busy = timed(lambda: subprocess.run([sys.executable, "-c", spin], check=True))
    _, _, idle = timed(lambda: time.monotonic())
    assert 0.3 <= busy
    assert idle < 0.1


def test_every_goal_is_about_a_figure_that_is_measured() -> None:
    """The goal refers to a measure that its rival takes part in; otherwise it would always be open."""
    figures = {(measure.name, figure) for measure in MEASURES for figure in measure.figures}
    taking = {measure.name: measure.only or tuple(KEEPERS) for measure in MEASURES}
    assert set() == {(goal.measure, goal.figure) for goal in GOALS} - figures
    assert [] == [goal.text for goal in GOALS if goal.rival and goal.rival not in taking[goal.measure]]


@pytest.mark.slow
def test_measures_give_figures(tmp_path: Path) -> None:
    """From the command to the data."""
    names = ["moves-10MB"]
    chosen = [word for name in names for word in ("--measure", name)]
    data = tmp_path / "data.json"
    command = ["state", "--quick", "--contender", "cenote", *chosen, "--json", str(data)]
    table = subprocess.run(
        [sys.executable, "-m", "benchmarks", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    ).stdout
    samples = json.loads(data.read_text())["samples"]
    assert [(name, "measured", "") for name in names] == [
        (sample["measure"], sample["outcome"], sample["reason"]) for sample in samples
    ]
    assert all(f"{name}: " in table for name in names)


def test_what_a_child_has_used_before_is_no_part_of_what_it_ends_with() -> None:
    """Its parent is charged all of it; for a child that no process waited for nothing is subtracted."""
    before = {1: Used(own=1.0), 2: Used(parent=1, own=5.0, ended=1.0)}
    assert pytest.approx(0.5) == used_between(before, {1: Used(own=1.2, ended=6.3)})
    assert 0.25 == used_between(before, {1: Used(own=1.25)})
    assert 2.0 == used_between({}, {3: Used(own=2.0)})
