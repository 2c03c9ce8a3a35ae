"""Hand-written traps: one mechanism each, with the smallest program that shows it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
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
    """A step's changes are among its writes, and its dependencies among its reads."""
    steps = in_process()
    if setup:
        steps.good(setup)
    trace = steps.run(act)
    assert locations(writes) <= trace.writes.keys(), rule
    assert locations(reads) <= trace.reads.keys(), rule
    assert locations(untouched).isdisjoint(trace.writes), rule


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
