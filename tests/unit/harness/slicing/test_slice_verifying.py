"""The results of verifying a slice, in a sandbox of plain dicts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from tests.support.harness.lines import Line

from cenote.harness.record.history_index import HistoryIndex
from cenote.harness.slicing.slices import Verification, slice_of, verify
from cenote_security.errors import RehearsalError, RejectedError, UnsafeValueError
from cenote_worker.execution.results import ErrorInfo, Span
from cenote_worker.execution.trace import StepTrace, ValueKind, Version, name
from cenote_worker.history.step import StepRecord


class Table:
    """A VerificationSandbox. values: its variables."""

    def __init__(self, **values: object) -> None:
        self.values = values
        self.sources: list[str] = []
        self.kept: dict[int, set[str]] = {}

    def keeps(self, step: int) -> Collection[str]:
        return self.kept.get(step, set())

    def present(self, name: str) -> object:
        if name == "secret":
            raise UnsafeValueError("Secret")
        return self.values[name]

    def again(self, source: str, _records: Sequence[StepRecord], name: str, _seconds: float) -> object:
        self.sources.append(source)
        namespace: dict[str, object] = {}
        try:
            exec(source, namespace)
        except Exception as error:
            raise RehearsalError(f"its program ends with {type(error).__name__}") from None
        return namespace[name]


def tried(line: Line, stage: Table, symbol: str) -> Verification:
    past = HistoryIndex(line.history)
    return verify(slice_of(past, symbol, past.head), past, stage)


def test_the_same_value_is_verified() -> None:
    """By meaning, not by identity."""
    line, stage = Line(), Table(x=[1, float("nan")])
    line.run("y = 2\nx = [1, float('nan')]", writes="xy")
    found = tried(line, stage, "x")
    assert ("verified", "") == (found.outcome, found.reason)
    assert ["# step 1\nx = [1, float('nan')]"] == stage.sources


def test_statements_that_are_needed_after_all_are_put_back() -> None:
    """The returned slice is the one that gave the value."""
    line, stage = Line(), Table(x=2)
    line.run("import os\nprint(exec('hidden = 2', globals()))\nx = hidden", writes=["x", "os"])
    found = tried(line, stage, "x")
    assert ("verified", True, 2) == (found.outcome, found.slice.whole, len(stage.sources))


def test_nothing_is_said_of_what_may_not_be_tried() -> None:
    """A read-only caller gets that reason, and not a different value."""
    line, stage = Line(), Table(x=2)
    line.run("x = 2", writes="x")

    def again(*_: object) -> object:
        raise RejectedError("this token lets its holder read, not run")

    stage.again = again  # type: ignore[method-assign]
    found = tried(line, stage, "x")
    expected = ("unverifiable", "it cannot be tried: this token lets its holder read, not run")
    assert expected == (found.outcome, found.reason)


def test_steps_in_full_are_not_tried_where_they_would_fail() -> None:
    """The result is open: the statements before the failure are not enough."""
    line, stage = Line(), Table(x=2)
    error = ErrorInfo(type="ValueError", message="", span=Span(line=2, column=0, end_line=2, end_column=4))
    kinds = {name("x"): ValueKind(type="int")}
    trace = StepTrace(writes={name("x"): Version("1")}, kinds=kinds)
    line.blind("x = 1\nboom(hidden)", trace=trace, status="failed", error=error)
    found = tried(line, stage, "x")
    assert ("unverifiable", ["# step 1\nx = 1"]) == (found.outcome, stage.sources)
    assert "step 1 failed, and the program would end there" == found.reason


def test_another_value_is_different() -> None:
    """And so is a program that fails."""
    line, stage = Line(), Table(x=1, y=1)
    line.run("x = 2", writes="x")
    line.run("y = undefined", writes="y")
    assert ("different", "it gives another `x`") == (
        tried(line, stage, "x").outcome,
        tried(line, stage, "x").reason,
    )
    assert "its program ends with NameError" == tried(line, stage, "y").reason


@pytest.mark.parametrize(
    ("symbol", "reason"),
    [
        ("late", "the value of `late` that step 2 put in is kept no more"),
        ("early", "the value that `raw` had at the start is kept no more"),
        ("failed", "step 4 failed, and the program would end there"),
        ("file:data.csv", "`file:data.csv` is no variable that everybody sees"),
        ("secret", "it cannot be compared"),
    ],
)
def test_what_cannot_be_verified(symbol: str, reason: str) -> None:
    """It is not tried."""
    line, stage = Line("raw"), Table(late=1, early=1, failed=1)
    line.run("early = raw", reads=["raw"], writes=["early"])
    line.run(kind="injection", names=("late",), writes=["late"])
    line.run("secret = object()", writes=["secret"])
    line.run("failed = 1\n1 / 0", writes=["failed"], status="failed")
    line.run(kind="upload", names=("data.csv",))
    if symbol.startswith("file:"):
        line.blind("...")
    found = tried(line, stage, symbol)
    assert ("unverifiable", []) == (found.outcome, stage.sources)
    assert reason in found.reason


def test_a_value_that_was_put_in_over_another() -> None:
    """A fresh runtime begins with the second value, which the first steps did not have."""
    line, stage = Line("raw"), Table(x=3)
    stage.kept = {0: {"raw"}, 2: {"raw"}}
    line.run("y = raw", reads=["raw"], writes="y")
    line.run(kind="injection", names=("raw",), writes=["raw"])
    line.run("x = y + raw", reads=["y", "raw"], writes="x")
    found = tried(line, stage, "x")
    assert "step 2 put in a `raw` where there had been another" == found.reason


def test_only_what_is_live_is_compared() -> None:
    """The value of another state is not available for comparison."""
    line, stage = Line(), Table(x=1)
    line.run("x = 1", writes="x")
    line.run("y = 1", writes="y")
    past = HistoryIndex(line.history)
    assert "unverifiable" == verify(slice_of(past, "x", 1), past, stage).outcome
