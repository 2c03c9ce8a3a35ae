"""A namespace as a verifier sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias

from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.execution.results import ExecutionResult, VariableInfo

if TYPE_CHECKING:
    from cenote.runtime.faces.sync import PythonRuntime


class FinalState:
    """What work has come to in a runtime: to look at, not to change."""

    def __init__(self, runtime: PythonRuntime) -> None:
        self._runtime = runtime

    def retrieve(self, name: str, classes: Iterable[type] = ()) -> Any:
        """A copy of a variable, rebuilt safely. Raises UnknownNameError, UnsafeValueError."""
        return self._runtime.retrieve(name, classes)

    def describe(self) -> list[VariableInfo]:
        """What the namespace holds, never values."""
        return self._runtime.describe()

    def check(self, code: str, timeout: float | None = None) -> ExecutionResult:
        """Runs a cell beside the work, with what it left: variables are afterwards as they were before.

        What the cell sees was made by the model's code, which may lie: trust values that you check out here.
        Raises UnavailableError, and runs nothing, where the state cannot be kept meanwhile.
        """
        before = self._runtime.snapshot().step
        result = self._runtime.execute(code, timeout)
        if result.state == "lost":
            raise UnavailableError(
                "the runtime ended while it was checked, with what it had; run the task again"
            )
        if result.state == "kept":
            self._runtime.rollback(before)
        return result


Score: TypeAlias = Callable[[FinalState], float]
"""A plain function that says how good a final state is; the higher the better."""


def scored(score: Score, state: FinalState) -> float | None:
    """What `score` gives; None for NaN, which is neither better nor worse than anything, so that it says nothing.

    Raises TypeError for what is no number, as a mistake in `score`, and what that raises.
    """
    given = score(state)
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"score gives a number, not {given!r:.100}") from None
    return None if math.isnan(number) else number


def check_score(score: object) -> None:
    """Before any work is done for it. Raises UsageError for what is no plain function."""
    if not callable(score) or iscoroutinefunction(score):
        what = "an async one" if callable(score) else type(score).__name__
        raise UsageError(
            f"score is a plain function of the final state, not {what}; it is called on a thread"
        )
