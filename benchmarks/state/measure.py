"""A measure of the state benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.runtime.measure import Figures, Heading
from benchmarks.state.keeper import StateKeeper
from benchmarks.state.parameters import Parameters

Run = Callable[[type[StateKeeper], Parameters, Path], Figures]
"""Takes a contender's class, the sizes, and a folder that is removed afterwards."""


@dataclass(frozen=True, kw_only=True)
class Measure(Heading):
    """One sample is one call of `run` in a new process."""

    run: Run
