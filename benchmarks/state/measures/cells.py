"""Time of a cell with and without saving the state after it: the same cells, in turns."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.runtime.contender import NotOfferedError
from benchmarks.runtime.measure import Figures, Unit
from benchmarks.runtime.stopwatch import seconds
from benchmarks.state.cpu import timed
from benchmarks.state.keeper import StateKeeper
from benchmarks.state.keepers import KEEPING_EACH_CELL
from benchmarks.state.measure import Measure
from benchmarks.state.parameters import MB, Parameters

MEMORY = 5000 * MB


@dataclass(frozen=True, kw_only=True)
class Cell:
    """setup, code: `{many}` is replaced by a count, smaller in quick runs."""

    name: str
    title: str
    setup: str
    code: str
    many: int = 1

    def spelled(self, code: str, divisor: int) -> str:
        return code.replace("{many}", str(max(self.many // divisor, 10)))


CELLS = (
    Cell(name="trivial", title="`x = 1`", setup="", code="x = 1"),
    Cell(name="file", title="a small file written", setup="", code="open('a', 'w').write('b' * 1000)"),
    Cell(
        name="key",
        title="one key of a dictionary of 100,000",
        setup="d = {i: str(i) for i in range({many})}",
        code="d[5] = d[5] + '.'",
        many=100_000,
    ),
    Cell(
        name="calls",
        title="a function called a million times",
        setup="def f(x):\n    return x + 1",
        code="for i in range({many}):\n    f(i)",
        many=1_000_000,
    ),
    Cell(
        name="column",
        title="one column of a frame of 500 MB",
        setup="import numpy as np, pandas as pd\ndf = pd.DataFrame(np.random.default_rng(1).random(({many}, 10)))",
        code="df[3] = df[3] + 1",
        many=6_250_000,
    ),
    Cell(
        name="sweep",
        title="an array of 1 GB, all of it changed in place",
        setup="import numpy as np\na = np.ones({many})",
        code="a += 1",
        many=125_000_000,
    ),
    Cell(
        name="objects",
        title="a million small objects, each looked at",
        setup="objects = [[number] for number in range({many})]",
        code="n = sum(len(one) for one in objects)",
        many=1_000_000,
    ),
    Cell(
        name="temporaries",
        title="a frame of 50 MB computed with, much memory asked for and given back",
        setup="import numpy as np, pandas as pd\ndf = pd.DataFrame(np.random.default_rng(1).random(({many}, 10)))",
        code="m = (df * 2 + 1).groupby((df[0] * 10).astype(int)).mean()",
        many=650_000,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two namespaces. walls: seconds of each cell, as its client sees it. cpu: of each block, by cell."""

    keeper: StateKeeper
    walls: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run_block(self, code: str, parameters: Parameters, deadline: float) -> None:
        """Several consecutive cells: the second one waits for work that the first one left."""
        fewest = max(parameters.fewest // 2, 1)
        block: list[float] = []

        def run() -> None:
            while len(block) < parameters.block and (len(block) < fewest or time.monotonic() < deadline):
                block.append(seconds(partial(self.keeper.execute, code)))

        _, _, cpu = timed(run)
        self.walls.extend(block[1:] or block)
        self.cpu.append(cpu / len(block))


def time_cells(kind: type[StateKeeper], parameters: Parameters, folder: Path, *, cell: Cell) -> Figures:
    """Raises NotOfferedError for a contender that saves nothing between cells."""
    if not kind.keeps_values:
        raise NotOfferedError("it keeps the code only")
    folders = [folder / "with", folder / "without"]
    for one in folders:
        one.mkdir()
    with (
        closing(kind(folders[0], MEMORY, keeping=True)) as keeping,
        closing(kind(folders[1], MEMORY, keeping=False)) as plain,
    ):
        sides = Side(keeper=plain), Side(keeper=keeping)
        for side in sides:
            side.keeper.execute(cell.spelled(cell.setup, parameters.divisor) or "pass")
            side.keeper.execute(cell.spelled(cell.code, parameters.divisor))
        _take_turns(sides, cell.spelled(cell.code, parameters.divisor), parameters)
    return _figures(*sides)


def _take_turns(sides: tuple[Side, Side], code: str, parameters: Parameters) -> None:
    deadline = time.monotonic() + parameters.cell_seconds
    for number in range(max(parameters.cells // parameters.block, 1)):
        for side in sides if number % 2 == 0 else sides[::-1]:
            side.run_block(code, parameters, deadline)
        if time.monotonic() > deadline:
            return


def _figures(plain: Side, keeping: Side) -> Figures:
    without, having = statistics.median(plain.walls), statistics.median(keeping.walls)
    more_cpu = statistics.median(keeping.cpu) - statistics.median(plain.cpu)
    return {
        "without": without,
        "with": having,
        "times": having / without,
        "added": having - without,
        "added CPU": more_cpu,
    }


MEASURES = tuple(
    Measure(
        name=f"cell-{cell.name}",
        title=f"{cell.title}; back to back, the state kept behind each",
        run=partial(time_cells, cell=cell),
        figures={
            "without": Unit.SECONDS,
            "with": Unit.SECONDS,
            "times": Unit.TIMES,
            "added": Unit.SECONDS,
            "added CPU": Unit.SECONDS,
        },
        limit=400.0,
        only=KEEPING_EACH_CELL,
    )
    for cell in CELLS
)
