"""CPU time of a worker for consecutive cells of the state benchmark, with snapshots and without, in turns.

    python -m benchmarks.snapshots.turns [CELL...]

The worker's time until the next cell counts, mainly the copy; the supervisor and the ends of copies do not count.
Unlike wall time this is reliable on a busy machine. Medians and minima are given: memory that the machine
gets from its host takes the worker several times as long in some cells. Run it as root.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from benchmarks.jail.cpu_clock import clock_of
from benchmarks.snapshots.pages import worker_of
from benchmarks.state.measures.cells import CELLS, MEMORY, Cell
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

BLOCKS = 6
PER_BLOCK = 10


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two variants. taken: CPU seconds of each cell but the block's first. kept: states before cells."""

    runtime: PythonRuntime
    clock: int
    taken: list[float] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, cell: Cell, snapshots: Literal["auto", "none"]) -> Side:
        runtime = PythonRuntime(sandbox=SandboxPolicy(memory=MEMORY, snapshots=snapshots))
        for code in (cell.setup or "pass", cell.code):
            assert runtime.execute(cell.spelled(code, 1)).success
        return cls(runtime=runtime, clock=clock_of(worker_of(os.getpid())))

    def run_block(self, code: str) -> None:
        marks = [time.clock_gettime(self.clock)]
        for _ in range(PER_BLOCK):
            result = self.runtime.execute(code)
            assert result.success
            self.kept.append(not result.unkept)
            marks.append(time.clock_gettime(self.clock))
        self.taken.extend(later - earlier for earlier, later in pairwise(marks[1:]))


def compare(cell: Cell) -> str:
    plain = Side.of(cell, "none")
    with closing(plain.runtime):
        having = Side.of(cell, "auto")
        with closing(having.runtime):
            for number in range(BLOCKS):
                for side in (plain, having) if number % 2 == 0 else (having, plain):
                    side.run_block(cell.spelled(cell.code, 1))
    told = []
    for name, of in (("median", statistics.median), ("least", min)):
        without, taxed = of(plain.taken), of(having.taken)
        told.append(f"{name} {without * 1e3:6.1f} -> {taxed * 1e3:6.1f} ms {taxed / without:5.2f}x")
    return f"{cell.name:12} {'  '.join(told)}  kept {sum(having.kept)}/{len(having.kept)}"


def main(names: list[str]) -> None:
    for cell in CELLS:
        if not names or cell.name in names:
            print(compare(cell), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
