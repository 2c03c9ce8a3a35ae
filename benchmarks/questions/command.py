"""The command: asks every question that a history answers, on one with many steps that build on each other."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from tests.support.harness.questions import QUESTIONS, chain

from cenote.harness import ExecutionState

TRIES = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=10_000, help="of the history")


def run(arguments: argparse.Namespace) -> None:
    for kind, blind in (("all traced", False), ("a tenth untraced", True)):
        state = chain(arguments.steps, blind=blind)
        for name, ask in QUESTIONS.items():
            spent = [_seconds(ask, state) for _ in range(TRIES)]
            print(f"{kind:16} {name:24} first {1e3 * spent[0]:6.1f} ms, median {1e3 * median(spent):6.1f} ms")


def _seconds(ask: Callable[[ExecutionState], object], state: ExecutionState) -> float:
    """Measured as this thread's CPU time, so other load on the machine is not counted."""
    began = time.thread_time()
    ask(state)
    return time.thread_time() - began
