"""A measure: an operation on a running service, and the figures it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService
from benchmarks.runtime.measure import Figures, Heading

Run = Callable[[AnyService, Parameters], Figures]


@dataclass(frozen=True, kw_only=True)
class Measure(Heading):
    """One sample is one call of `run`. It leaves the service without namespaces, as before."""

    run: Run
