"""A state stored and reopened by other processes: CPU seconds of all processes involved, and bytes written."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.runtime.contender import NotOfferedError
from benchmarks.runtime.measure import Figures, Unit
from benchmarks.state.cpu import timed
from benchmarks.state.frame import State, check
from benchmarks.state.keeper import StateKeeper
from benchmarks.state.keepers import PEERS
from benchmarks.state.measure import Measure
from benchmarks.state.measures.moves import OURS_ALONE, ROUNDS, SIZES, memory_for
from benchmarks.state.parameters import Parameters

FIGURES = {
    "first": Unit.SECONDS,
    "bytes": Unit.BYTES,
    "after 1 %": Unit.SECONDS,
    "its bytes": Unit.BYTES,
    "after 10 %": Unit.SECONDS,
    "those bytes": Unit.BYTES,
    "restore": Unit.SECONDS,
    "restore, wall": Unit.SECONDS,
}
"""CPU seconds, except for the last one."""


def time_storage(
    kind: type[StateKeeper], parameters: Parameters, folder: Path, *, size: int, named: bool
) -> Figures:
    if not kind.keeps_values:
        raise NotOfferedError("it stores nothing")
    state = State(size=size // parameters.divisor, columns=parameters.columns, named=named)
    with closing(kind(folder, memory_for(size), keeping=True)) as keeper:
        keeper.prepare(state.making)
        kept = [keeper.store()]
        for percent, seed in ((1, 2), (10, 3)):
            keeper.prepare(state.changing(percent, seed))
            kept.append(keeper.store())
        wanted = keeper.peek(state.look)
    other, restore, restore_cpu = timed(partial(_restore, keeper, state, wanted))
    other.close()
    taken = [figure for one in kept for figure in (one.cpu, float(one.stored))]
    return dict(zip(FIGURES, (*taken, restore_cpu, restore), strict=True))


def _restore(keeper: StateKeeper, state: State, wanted: str) -> StateKeeper:
    other = keeper.reopened()
    check(other, state, wanted)
    return other


def _measure(name: str, size: int, *, named: bool) -> Measure:
    form = "100 arrays, each under a name" if named else "a frame of 100 columns"
    return Measure(
        name=f"stored-{name}{'-names' if named else ''}",
        title=f"{name} in {form}: stored, again after changes, restored; CPU seconds of all that takes part",
        run=partial(time_storage, size=size, named=named),
        figures=FIGURES,
        limit=590.0,
        rounds=ROUNDS[name],
        only=PEERS,
    )


MEASURES = (
    *(_measure(name, size, named=False) for name, size in SIZES.items() if name not in OURS_ALONE),
    _measure("500MB", SIZES["500MB"], named=True),
)
