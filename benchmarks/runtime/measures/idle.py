"""Memory cost of one more idle runtime."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from benchmarks.runtime.contender import Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.process_tree import tree_pss


def weigh_idle(kind: type[Contender], parameters: Parameters) -> dict[str, float]:
    """The first runtime is not counted, since it pays for the shared parts."""
    with ExitStack() as stack:
        stack.enter_context(closing(kind())).execute("x = 1")
        time.sleep(parameters.pause)
        before = tree_pss()
        for _ in range(parameters.idle):
            stack.enter_context(closing(kind())).execute("x = 1")
        time.sleep(parameters.pause)
        return {"PSS": (tree_pss() - before) / parameters.idle}


MEASURES = (
    Measure(
        name="idle",
        title="memory of an additional idle runtime",
        run=weigh_idle,
        figures={"PSS": Unit.BYTES},
        rounds=3,
    ),
)
