"""A namespace that sleeps: seconds until it does, and from the first cell afterwards to its answer."""

from __future__ import annotations

import statistics
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.runtime.contender import CellFailedError
from benchmarks.runtime.measure import Figures, Unit
from benchmarks.state.cpu import timed
from benchmarks.state.frame import State
from benchmarks.state.keeper import StateKeeper
from benchmarks.state.measure import Measure
from benchmarks.state.measures.moves import memory_for
from benchmarks.state.parameters import MB, Parameters

SIZES = {"bare": 0, "100MB": 100 * MB, "1GB": 1000 * MB}
TIMES = 5
FIGURES = ("fall asleep", "that CPU", "wake", "wake CPU")


def time_sleep(kind: type[StateKeeper], parameters: Parameters, folder: Path, *, size: int) -> Figures:
    """Medians; each time one small cell has changed something. `wake` includes a cell that looks at the state."""
    state = State(size=size // parameters.divisor, columns=parameters.columns)
    taken: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    with closing(kind(folder, memory_for(size), keeping=True)) as keeper:
        keeper.prepare(state.making)
        for number in range(TIMES):
            keeper.prepare(f"mark = {number}")
            wanted = keeper.peek(state.look)
            _, *falling = timed(keeper.sleep)
            _, *waking = timed(partial(_wake, keeper, state.look, wanted))
            for figure, value in zip(FIGURES, (*falling, *waking), strict=True):
                taken[figure].append(value)
    return {figure: statistics.median(values) for figure, values in taken.items()}


def _wake(keeper: StateKeeper, look: str, wanted: str) -> None:
    if (found := keeper.wake(look)) != wanted:
        raise CellFailedError(f"the state is not the one that slept: {found.strip()}, not {wanted.strip()}")


MEASURES = tuple(
    Measure(
        name=f"sleeps-{name}",
        title=f"a namespace sleeps and wakes, {'small' if not size else f'with a frame of {name}'}",
        run=partial(time_sleep, size=size),
        figures=dict.fromkeys(FIGURES, Unit.SECONDS),
        limit=400.0,
        rounds=3,
        only=("cenote", "cenote by value"),
    )
    for name, size in SIZES.items()
)
