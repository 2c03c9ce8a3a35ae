"""Many runtimes alive at once, each called in turn."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial

from benchmarks.runtime.contender import Contender
from benchmarks.runtime.measure import Measure, Unit
from benchmarks.runtime.parameters import Parameters
from benchmarks.runtime.process_tree import available_memory
from benchmarks.runtime.stopwatch import p50_p99, repeat, seconds

CELL = "x = 1"


def time_crowd(kind: type[Contender], parameters: Parameters, *, process_crowd: bool) -> dict[str, float]:
    """`memory` is the machine's loss of free memory per runtime, including the kernel's own share."""
    wanted = parameters.process_crowd if process_crowd else parameters.crowd
    with ExitStack() as stack:
        crowd: list[Contender] = []
        before = available_memory()

        def gather() -> None:
            for _ in range(wanted):
                crowd.append(stack.enter_context(closing(kind())))
                crowd[-1].execute(CELL)

        started = seconds(gather)
        memory = (before - available_memory()) / wanted
        samples = [
            sample
            for _ in range(parameters.crowd_passes)
            for contender in crowd
            for sample in repeat(partial(contender.execute, CELL), 1)
        ]
        return {"alive": wanted, "all started": started, "memory": memory, **p50_p99(samples)}


_FIGURES = {
    "alive": Unit.COUNT,
    "all started": Unit.SECONDS,
    "memory": Unit.BYTES,
    "p50": Unit.SECONDS,
    "p99": Unit.SECONDS,
}

MEASURES = (
    Measure(
        name="crowd",
        title="many runtimes alive at once, round trips over all of them",
        run=partial(time_crowd, process_crowd=False),
        figures=_FIGURES,
        rounds=2,
        limit=300.0,
        only=("cenote", "smolagents local", "plain exec"),
    ),
    Measure(
        name="process-crowd",
        title="a few runtimes alive at once (kernels: each takes a process with its own libraries)",
        run=partial(time_crowd, process_crowd=True),
        figures=_FIGURES,
        rounds=2,
        only=("cenote", "ipykernel", "cave-agent kernel"),
    ),
)
