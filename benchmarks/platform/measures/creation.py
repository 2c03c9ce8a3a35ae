"""Creation of namespaces, each up to its first result."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.platform.measure import Measure
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService, Namespace
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.stopwatch import repeat, seconds

CELL = "x = 1"
ALONE = 3


def time_creations(service: AnyService, parameters: Parameters) -> dict[str, float]:
    """All stay open until the end, so that ending one is not counted as making the next."""
    kept: list[Namespace] = []

    def create(_: int = 0) -> None:
        namespace = service.open()
        kept.append(namespace)
        namespace.execute(CELL)

    try:
        create()  # one-time work of the service
        alone = statistics.median(repeat(create, ALONE))
        wanted = service.choose(parameters.creations)
        with ThreadPoolExecutor(parameters.creators) as creators:
            together = seconds(partial(_run_all, creators, create, wanted))
    finally:
        for namespace in kept:
            namespace.close()
    return {"one": alone, "each of many": together / wanted}


def _run_all(creators: ThreadPoolExecutor, create: Callable[[int], None], wanted: int) -> None:
    list(creators.map(create, range(wanted)))  # raises what one of the threads raised


MEASURES = (
    Measure(
        name="create",
        title="a namespace made, to its first result; one alone, and of many made four at a time",
        run=time_creations,
        figures={"one": Unit.SECONDS, "each of many": Unit.SECONDS},
    ),
)
