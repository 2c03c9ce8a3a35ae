"""The saved state: a wide frame of random numbers, or separately named arrays, and small objects."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.runtime.contender import CellFailedError
from benchmarks.state.keeper import StateKeeper

SMALL_THINGS = "table = {n: str(n) for n in range(1000)}\nmark = 1"


@dataclass(frozen=True, kw_only=True)
class State:
    """size: bytes. columns: of the frame. named: each column is an array with its own name instead."""

    size: int
    columns: int
    named: bool = False

    @property
    def making(self) -> str:
        """A cell; each column gets different numbers."""
        rows = max(self.size // 8 // self.columns, 1)
        many = f"rng.random(({self.columns}, {rows}))"
        if self.named:
            frame = "\n".join(f"c{i} = rng.random({rows})" for i in range(self.columns))
        else:
            frame = f"df = pd.DataFrame({many}.T, copy=False)"
        return f"import numpy as np, pandas as pd\nrng = np.random.default_rng(1)\n{frame}\n{SMALL_THINGS}"

    def changing(self, percent: int, seed: int) -> str:
        """A cell that replaces the given number of a hundred columns in place, and sets `mark` to the seed."""
        count = max(self.columns * percent // 100, 1)
        if self.named:
            change = "\n".join(f"c{i}[:] = rng.random(len(c{i}))" for i in range(count))
        else:
            change = f"for i in range({count}): df.iloc[:, i] = rng.random(len(df))\ndel i"
        return f"rng = np.random.default_rng({seed})\n{change}\nmark = {seed}"

    @property
    def look(self) -> str:
        """A cell that prints what distinguishes states; it reads only part of them."""
        numbers = "[c0[0], c0[-1]]" if self.named else "[df.iat[0, 0], df.iat[-1, 0], df.iat[-1, -1]]"
        return f"print([float(one) for one in {numbers}], mark, len(table))"


def check(keeper: StateKeeper, state: State, wanted: str) -> None:
    """Raises CellFailedError unless a namespace is in the state that printed `wanted` before."""
    found = keeper.peek(state.look)
    if found != wanted:
        raise CellFailedError(
            f"the state is not the one that was kept: {found.strip()}, not {wanted.strip()}"
        )
