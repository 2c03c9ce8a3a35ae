"""Cells that run out of time. On a busy machine that may be before they reach the code under test."""

from __future__ import annotations

from tests.waiting import PATIENCE

from cenote.runtime import PythonRuntime
from cenote_worker.execution.results import ExecutionResult

LIMITS = (0.1, 1.0, 10.0, PATIENCE)
"""Seconds for consecutive attempts."""


def overdue(runtime: PythonRuntime, code: str) -> ExecutionResult:
    """Result of a cell that ends by its limit alone. It prints `begun` once an interrupt is allowed.

    It is run again, with more time, if an interrupt came before that and ended it.
    """
    for seconds in LIMITS:
        result = runtime.execute(code, timeout=seconds)
        if "begun" in result.stdout or result.state != "kept":
            return result
    raise AssertionError("it did not begin")
