"""A measure: what is done with a contender, and which figures come of it."""

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
    """What a plan and a report know of a measure.

    figures: key of each figure that a sample may hold -> its unit; keys are what the report prints.
    limit: seconds a sample may take before it counts as failed.
    rounds: at most so many samples per contender; None is as many as the run has.
    only: contenders it is taken for; empty is all.
    """

    name: str
    title: str
    figures: Mapping[str, Unit]
    limit: float = 120.0
    rounds: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measure(Heading):
    """One sample is one call of `run` in a fresh process."""

    run: Run
