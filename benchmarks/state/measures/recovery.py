"""A cell that ends its process: seconds from sending it until the state before it can be used again."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.runtime.measure import Figures, Unit
from benchmarks.runtime.stopwatch import seconds
from benchmarks.state.frame import State, check
from benchmarks.state.keeper import StateKeeper
from benchmarks.state.keepers import PEERS
from benchmarks.state.measure import Measure
from benchmarks.state.measures.moves import memory_for
from benchmarks.state.parameters import MB, Parameters

SIZE = 500 * MB
SEGFAULT = "import ctypes; ctypes.string_at(0)"


def time_recovery(kind: type[StateKeeper], parameters: Parameters, folder: Path) -> Figures:
    state = State(size=SIZE // parameters.divisor, columns=parameters.columns)
    with closing(kind(folder, memory_for(SIZE), keeping=True)) as keeper:
        keeper.prepare(state.making)
        wanted = keeper.peek(state.look)
        keeper.keep()
        usable = seconds(partial(_crash, keeper, state, wanted))
    return {"usable again": usable}


def _crash(keeper: StateKeeper, state: State, wanted: str) -> None:
    keeper.crash(SEGFAULT)
    check(keeper, state, wanted)


MEASURES = (
    Measure(
        name="segfault",
        title="a segfault beside 500 MB, until a cell has looked at the state before it",
        run=time_recovery,
        figures={"usable again": Unit.SECONDS},
        limit=400.0,
        only=PEERS,
    ),
)
