"""A sandbox that takes part in a round, and its timed operations."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from benchmarks.jail.cells import CELLS, EMPTY, Cell
from benchmarks.jail.cpu_clock import Crew
from benchmarks.jail.parameters import Parameters
from benchmarks.jail.sandbox import DoesNotRunHereError, Sandbox
from benchmarks.jail.sandboxes import load_sandbox
from benchmarks.runtime.process_tree import live_descendants
from benchmarks.runtime.stopwatch import repeat

SMALL_CELL = "x = 1"


@dataclass(frozen=True, kw_only=True)
class Participant:
    """One open sandbox with the cells prepared in it. started_in: seconds from its constructor to a first result."""

    sandbox: Sandbox
    crew: Crew
    parameters: Parameters
    started_in: float

    def start(self) -> Mapping[str, float]:
        return {"wall": self.started_in}

    def assign(self) -> Mapping[str, float]:
        """Median seconds of a round trip of the smallest cell."""
        times = repeat(partial(self.sandbox.execute, SMALL_CELL), self.parameters.round_trips)
        return {"wall": statistics.median(times)}

    def run(self, cell: Cell) -> Mapping[str, float]:
        """Seconds by the sandbox's clock, and CPU seconds of all its processes beyond those of an empty cell.

        Each is the minimum of several repetitions, since disturbances only add to a short run.
        """
        empty = self._least(EMPTY)
        full = self._least(cell)
        return {"wall": full["wall"], "CPU": full["CPU"] - empty["CPU"]}

    def _least(self, cell: Cell) -> Mapping[str, float]:
        runs = [self._run_once(cell) for _ in range(self.parameters.repetitions)]
        return {"wall": min(wall for wall, _ in runs), "CPU": min(cpu for _, cpu in runs)}

    def _run_once(self, cell: Cell) -> tuple[float, float]:
        before = self.crew.look()
        wall = float(self.sandbox.execute(cell.timed))
        return wall, self.crew.since(before)


def join(kind: type[Sandbox], scratch: str, parameters: Parameters, stack: ExitStack) -> Participant:
    """Start a sandbox that ends with `stack`, and prepare the cells in it. Raises DoesNotRunHereError."""
    before = live_descendants(os.getpid())
    begin = time.perf_counter()
    sandbox = stack.enter_context(closing(kind(scratch)))
    sandbox.execute(SMALL_CELL)
    started_in = time.perf_counter() - begin
    for cell in (EMPTY, *CELLS):
        sandbox.execute(cell.preparation(sandbox.folder, cell.times // parameters.divisor))
    return Participant(sandbox=sandbox, crew=Crew(before), parameters=parameters, started_in=started_in)


def roll_call(names: list[str], scratch: str) -> tuple[dict[str, type[Sandbox]], dict[str, str]]:
    """Starts each sandbox once: returns those that run here, and the reason for each that does not.

    This includes one-time costs of a first start, such as a zygote's imports or reading Python from disk.
    """
    present: dict[str, type[Sandbox]] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            kind = load_sandbox(name)
            with closing(kind(scratch)) as sandbox:
                sandbox.execute(SMALL_CELL)
            present[name] = kind
        except DoesNotRunHereError as error:
            absent[name] = str(error)
    return present, absent
