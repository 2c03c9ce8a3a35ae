"""Queries about a history, and a history for which they are expensive: for the cost test and the benchmark."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.harness.lines import Line

from cenote.harness import ExecutionState
from cenote_worker.history.events import ArtifactDeclared

QUESTIONS: dict[str, Callable[[ExecutionState], object]] = {
    "steps": lambda state: state.steps,
    "history": lambda state: state.history,
    "line": lambda state: state.line(state.head),
    "steps_by": lambda state: state.steps_by(author="ana", symbol="v3"),
    "at": lambda state: state.at(state.head),
    "blame": lambda state: state.blame("raw"),
    "dependents of a symbol": lambda state: state.dependents("raw"),
    "dependents of a step": lambda state: state.dependents(1),
    "slice": lambda state: state.slice("last"),
    "diff": lambda state: state.diff(1, state.head),
    "graph": lambda state: state.graph(),
    "artifacts": lambda state: state.artifacts,
}


def chain(steps: int, *, blind: bool) -> ExecutionState:
    """Each step reads the result of the one before, so that everything depends on everything."""
    line = Line("raw")
    line.history.declared(ArtifactDeclared(name=each, kind="dataset") for each in ("last", "v1"))
    line.run(reads=["raw"], writes=["last"])
    for number in range(steps):
        if blind and number % 10 == 0:
            line.blind("...")
        line.run(reads=["last", f"v{number % 7}"], writes=["last", f"v{number % 5}"], author="ana")
    return line.state
