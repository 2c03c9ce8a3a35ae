"""Concurrent clients, each with its own namespace, all in one process of the benchmark."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial

from benchmarks.platform.measure import Measure
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService, Namespace
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.stopwatch import percentile, repeat

CELL = "x = 1"


def time_clients(service: AnyService, parameters: Parameters, *, few: bool) -> dict[str, float]:
    """One thread per client. They begin together, and each waits for its answer before its next request."""
    wanted = parameters.few_clients if few else parameters.clients
    with ExitStack() as stack, ThreadPoolExecutor(wanted) as clients:
        crowd = [stack.enter_context(closing(service.open())) for _ in range(wanted)]
        for namespace in crowd:
            namespace.execute(CELL)
        together = threading.Barrier(wanted)
        ask = partial(_ask, together, parameters.client_cells)
        begin = time.perf_counter()
        taken = [sample for samples in clients.map(ask, crowd) for sample in samples]
        elapsed = time.perf_counter() - begin
    return {
        "clients": wanted,
        "cells a second": len(taken) / elapsed,
        "p50": percentile(taken, 50),
        "p99": percentile(taken, 99),
    }


def _ask(together: threading.Barrier, cells: int, namespace: Namespace) -> list[float]:
    together.wait()
    return repeat(partial(namespace.execute, CELL), cells)


_FIGURES = {
    "clients": Unit.COUNT,
    "cells a second": Unit.COUNT,
    "p50": Unit.SECONDS,
    "p99": Unit.SECONDS,
}

MEASURES = (
    Measure(
        name="clients-few",
        title="`x = 1` from a few clients at once",
        run=partial(time_clients, few=True),
        figures=_FIGURES,
        rounds=2,
    ),
    Measure(
        name="clients",
        title="`x = 1` from many clients at once",
        run=partial(time_clients, few=False),
        figures=_FIGURES,
        only=("cenote",),
    ),
)
