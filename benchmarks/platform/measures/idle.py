"""Memory cost of one more idle namespace."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from benchmarks.platform.measure import Measure
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.process_tree import tree_pss


def weigh_idle(service: AnyService, parameters: Parameters) -> dict[str, float]:
    """`all` includes everything added, such as shared processes; `a further one` is measured in the second half.

    The first namespace is not counted, since it pays for the shared parts.
    """
    wanted = service.choose(parameters.idle)
    half = wanted // 2
    with ExitStack() as stack:

        def add(count: int) -> int:
            for _ in range(count):
                stack.enter_context(closing(service.open())).execute("x = 1")
            time.sleep(parameters.pause)
            return tree_pss()

        before = add(1)
        middle = add(half)
        after = add(wanted - half)
    return {
        "namespaces": wanted,
        "all": (after - before) / wanted,
        "a further one": (after - middle) / (wanted - half),
    }


MEASURES = (
    Measure(
        name="idle",
        title="memory (PSS) of idle namespaces, each",
        run=weigh_idle,
        figures={"namespaces": Unit.COUNT, "all": Unit.BYTES, "a further one": Unit.BYTES},
        rounds=1,
        limit=180.0,
    ),
)
