"""The command: every question that a history of many steps answers, on one whose steps build on each other."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from tests.harness.lines import Line

from cenote.harness import ExecutionState

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
}

TRIES = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=10_000, help="of the history")


def run(arguments: argparse.Namespace) -> None:
    for kind, blind in (("all traced", False), ("a tenth untraced", True)):
        state = _history(arguments.steps, blind=blind)
        for name, ask in QUESTIONS.items():
            spent = [_seconds(ask, state) for _ in range(TRIES)]
            print(f"{kind:16} {name:24} first {1e3 * spent[0]:6.1f} ms, median {1e3 * median(spent):6.1f} ms")


def _seconds(ask: Callable[[ExecutionState], object], state: ExecutionState) -> float:
    """Of this thread's own time: other work on the machine is not counted."""
    began = time.thread_time()
    ask(state)
    return time.thread_time() - began


def _history(steps: int, *, blind: bool) -> ExecutionState:
    """Each step takes what the one before wrote, so that everything depends on everything."""
    line = Line("raw")
    line.run(reads=["raw"], writes=["last"])
    for number in range(steps):
        if blind and number % 10 == 0:
            line.blind("...")
        line.run(reads=["last", f"v{number % 7}"], writes=["last", f"v{number % 5}"], author="ana")
    return line.state
