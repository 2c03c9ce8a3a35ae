"""A sandbox that takes part, and what is timed of it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.jail.cells import CELLS, Cell
from benchmarks.jail.cpu_clock import Crew
from benchmarks.jail.parameters import Parameters
from benchmarks.jail.sandbox import DoesNotRunHereError, Sandbox
from benchmarks.jail.sandboxes import load_sandbox
from benchmarks.runtime.process_tree import live_descendants
from benchmarks.runtime.stopwatch import repeat

SMALL_CELL = "x = 1"


@dataclass(frozen=True, kw_only=True)
class Participant:
    """One open sandbox, its cells prepared and run once, and what starts further ones of its kind."""

    kind: type[Sandbox]
    sandbox: Sandbox
    crew: Crew
    scratch: str
    parameters: Parameters

    def start(self) -> Mapping[str, float]:
        """Seconds from the constructor of one more sandbox to its first result; its end is not in it."""
        with ExitStack() as stack:
            started = time.perf_counter()
            further = stack.enter_context(closing(self.kind(self.scratch)))
            further.execute(SMALL_CELL)
            return {"wall": time.perf_counter() - started}

    def assign(self) -> Mapping[str, float]:
        """Median seconds of a round trip of the smallest cell."""
        times = repeat(partial(self.sandbox.execute, SMALL_CELL), self.parameters.round_trips)
        return {"wall": statistics.median(times)}

    def run(self, cell: Cell) -> Mapping[str, float]:
        """Seconds by the sandbox's clock, and CPU seconds of all its processes: the least of some repetitions each.

        What disturbs a short run only ever adds to it, so the least is the best estimate that a busy machine gives.
        """
        runs = [self._run_once(cell) for _ in range(self.parameters.repetitions)]
        return {"wall": min(wall for wall, _ in runs), "CPU": min(cpu for _, cpu in runs)}

    def _run_once(self, cell: Cell) -> tuple[float, float]:
        before = self.crew.look()
        wall = float(self.sandbox.execute(cell.timed))
        return wall, self.crew.since(before)


@contextmanager
def joining(
    names: list[str], scratch: str, parameters: Parameters
) -> Iterator[tuple[dict[str, Participant], dict[str, str]]]:
    """Open sandboxes: those that take part, and why each of the others does not run here."""
    present: dict[str, Participant] = {}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        for name in names:
            try:
                present[name] = _join(name, scratch, parameters, stack)
            except DoesNotRunHereError as error:
                absent[name] = str(error)
        yield present, absent


def _join(name: str, scratch: str, parameters: Parameters, stack: ExitStack) -> Participant:
    kind = load_sandbox(name)
    before = live_descendants(os.getpid())
    sandbox = stack.enter_context(closing(kind(scratch)))
    for cell in CELLS:
        sandbox.execute(cell.preparation(sandbox.folder, cell.times // parameters.divisor))
        sandbox.execute(cell.timed)
    return Participant(kind=kind, sandbox=sandbox, crew=Crew(before), scratch=scratch, parameters=parameters)
