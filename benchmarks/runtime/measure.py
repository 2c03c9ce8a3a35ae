"""A measure: an operation on a contender, and the figures it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from benchmarks.runtime.contender import Contender
from benchmarks.runtime.parameters import Parameters

Figures = Mapping[str, float]
Run = Callable[[type[Contender], Parameters], Figures]


class Unit(Enum):
    SECONDS = "s"
    BYTES = "B"
    COUNT = ""
    TIMES = "x"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The facts about a measure that plans and reports use.

    figures: key of each figure that a sample may hold -> its unit; keys are what the report prints.
    limit: seconds a sample may take before it counts as failed.
    rounds: most samples per contender; None for as many as the run has.
    only: contenders it is measured for; empty for all.
    """

    name: str
    title: str
    figures: Mapping[str, Unit]
    limit: float = 120.0
    rounds: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measure(Heading):
    """One sample is one call of `run` in a new process."""

    run: Run
