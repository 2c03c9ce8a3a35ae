"""`python -m benchmarks tracking`: each cell in two jails, one of which tracks it, in turns."""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.tracking.cells import CELLS
from cenote import PythonRuntime, SandboxPolicy

MEMORY = "4GiB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15, help="how often each cell runs in each jail")
    parser.add_argument("--only", default="", help="part of a cell's name")


def run(arguments: argparse.Namespace) -> None:
    """Prints medians as the client sees them, in milliseconds."""
    print(f"{'cell':28} {'plain':>10} {'watched':>10} {'more':>10} {'ratio':>7}")
    for name, (setup, cell) in CELLS.items():
        if arguments.only in name:
            plain, watched = _medians(setup, cell, arguments.rounds)
            print(f"{name:28} {plain:10.2f} {watched:10.2f} {watched - plain:10.2f} {watched / plain:7.2f}")


def _medians(setup: str, cell: str, rounds: int) -> tuple[float, float]:
    with _runtime(tracking=False) as plain, _runtime(tracking=True) as watched:
        both = (plain, watched)
        for runtime in both:
            assert runtime.execute(setup).success
            runtime.execute(cell)
        times = [[_seconds(runtime, cell) for runtime in both] for _ in range(rounds)]
    return statistics.median(pair[0] for pair in times) * 1e3, statistics.median(
        pair[1] for pair in times
    ) * 1e3


def _runtime(*, tracking: bool) -> PythonRuntime:
    return PythonRuntime(sandbox=SandboxPolicy(tracking=tracking, memory=MEMORY))


def _seconds(runtime: PythonRuntime, cell: str) -> float:
    started = time.perf_counter()
    assert runtime.execute(cell).success
    return time.perf_counter() - started
