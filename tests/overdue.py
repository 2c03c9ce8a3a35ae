"""Cells that run out of time. On a busy machine that may be before they have come to what a test is about."""

from __future__ import annotations

from tests.waiting import PATIENCE

from cenote.runtime import PythonRuntime
from cenote_worker.execution.results import ExecutionResult

LIMITS = (0.1, 1.0, 10.0, PATIENCE)
"""Seconds, of one try after the other."""


def overdue(runtime: PythonRuntime, code: str) -> ExecutionResult:
    """Of a cell that ends by its limit alone. It prints `begun` once an interrupt may do what it does.

    It is run again, with more time, where an interrupt came before that and ended it.
    """
    for seconds in LIMITS:
        result = runtime.execute(code, timeout=seconds)
        if "begun" in result.stdout or result.state != "kept":
            return result
    raise AssertionError("it did not begin")
