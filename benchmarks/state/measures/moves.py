"""A state saved, restored, branched: seconds until a cell can use it."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.runtime.measure import Figures, Unit
from benchmarks.state.cpu import timed
from benchmarks.state.frame import State, check
from benchmarks.state.keeper import StateKeeper
from benchmarks.state.keepers import PEERS
from benchmarks.state.measure import Measure
from benchmarks.state.parameters import MB, Parameters

SIZES = {"10MB": 10 * MB, "500MB": 500 * MB, "1GB": 1000 * MB, "2GB": 2000 * MB, "4GB": 4000 * MB}
ROUNDS = {"10MB": 5, "500MB": 3, "1GB": 3, "2GB": 2, "4GB": 1}
OURS_ALONE = {"1GB"}
"""Sizes measured for Cenote only, since a goal refers to them."""

ROOM = 1000 * MB
FIGURES = ("keep", "keep CPU", "back", "back, looked at", "that CPU", "fork", "fork CPU")


def memory_for(size: int) -> int:
    """Bytes: the state, a second one while it is made or changed, and a Python process."""
    return 3 * size + ROOM


def time_moves(kind: type[StateKeeper], parameters: Parameters, folder: Path, *, size: int) -> Figures:
    """`back` and `fork` include a cell that looks at the state, so that work deferred to first use is counted."""
    state = State(size=size // parameters.divisor, columns=parameters.columns)
    with closing(kind(folder, memory_for(size), keeping=True)) as keeper:
        keeper.prepare(state.making)
        wanted = keeper.peek(state.look)
        kept = keeper.keep()
        keeper.prepare(state.changing(10, seed=3))
        _, back, back_cpu = timed(keeper.go_back)
        _, look, look_cpu = timed(partial(check, keeper, state, wanted))
        _, fork, fork_cpu = timed(partial(_branch, keeper, state, wanted))
    keeping = {"keep": kept.wall, "keep CPU": kept.cpu} if kept else {}
    taken = (back, back + look, back_cpu + look_cpu, fork, fork_cpu)
    return {**keeping, **dict(zip(FIGURES[2:], taken, strict=True))}


def _branch(keeper: StateKeeper, state: State, wanted: str) -> None:
    with closing(keeper.branch()) as other:
        check(other, state, wanted)


MEASURES = tuple(
    Measure(
        name=f"moves-{name}",
        title=f"a state of {name} kept, gone back to after a tenth was changed, forked",
        run=partial(time_moves, size=size),
        figures=dict.fromkeys(FIGURES, Unit.SECONDS),
        limit=590.0,
        rounds=ROUNDS[name],
        only=("cenote",) if name in OURS_ALONE else PEERS,
    )
    for name, size in SIZES.items()
)
