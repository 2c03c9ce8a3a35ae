"""Hand-written traps: one mechanism each, with the smallest program that shows it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy  # noqa: F401  here, since programs import it: the first import in a process is not like the second
import pytest
from tests.support.tracking.kept_states import Line, state
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import Location, file

FOLDER = (Path(__file__).resolve().parents[2] / "support" / "tracking") / "traps"
TRAPS = [
    pytest.param(*trap, id=f"{path.stem}-{trap[0]}".replace(" ", "_"))
    for path in sorted(FOLDER.glob("*.py"))
    for trap in runpy.run_path(str(path))["TRAPS"]
]


def locations(text: str) -> set[Location]:
    return {Location(each if ":" in each or each == "*" else f"name:{each}") for each in text.split()}


@pytest.mark.sweep
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("rule", "setup", "act", "writes", "reads", "untouched"), TRAPS)
def test_what_changes_is_seen(
    in_process: Callable, rule: str, setup: str, act: str, writes: str, reads: str, untouched: str
) -> None:
    """A step's changes are among its writes, and its dependencies among its reads. Where bindings record what it does
    elsewhere than in a name, they make the same state; a trap that changes the process itself is not repeated."""
    line = Line(in_process)
    if setup:
        line.run(setup)
        assert not line.steps.failure
    trace = line.run(act)
    assert locations(writes) <= trace.writes.keys(), rule
    assert locations(reads) <= trace.reads.keys(), rule
    assert locations(untouched).isdisjoint(trace.writes), rule
    if "hidden:" not in writes and line.kept[-1].bindings is not None:
        assert state(line.steps) == state(line.back_at(len(line.cells))), rule


def test_there_are_traps() -> None:
    assert len(TRAPS) >= 150


def test_temporary_files_of_other_tests_are_none_of_a_step_s(
    steps: Steps, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A platform of this process has its database there: reading and closing it would release SQLite's locks."""
    other = tmp_path_factory.mktemp("others") / "database"
    trace = steps.good(f"import subprocess\ndone = subprocess.run(['touch', {str(other)!r}])")
    assert other.exists()
    assert file(str(other)) not in trace.writes
