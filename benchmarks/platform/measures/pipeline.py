"""A pipeline of agents with scripted models: the values passed on, and how much of them reaches the prompts."""

from __future__ import annotations

import asyncio
import os
import time
from functools import reduce
from operator import rshift

from benchmarks.platform.measure import Measure
from benchmarks.platform.parameters import Parameters
from benchmarks.platform.service import AnyService
from benchmarks.runtime.contender import CellFailedError
from benchmarks.runtime.measure import Unit
from cenote.models import ScriptedModel
from cenote.team import Step, Team

FIRST = "import numpy\nrows = numpy.zeros({items})"
NEXT = "rows = rows + 1"


class _Line:
    """agents: in sequence. size: bytes of the array that each one changes and passes to the next."""

    def __init__(self, agents: int, size: int) -> None:
        self._items = size // 8
        self._codes = [FIRST.format(items=self._items), *[NEXT] * (agents - 1)]
        self._models = [ScriptedModel([f"```python\n{code}\n```", "Done."]) for code in self._codes]

    async def run(self) -> tuple[float, float]:
        """Returns the last element and the duration."""
        async with Team("line") as team:
            members = [team.add(f"agent{n}", model=model) for n, model in enumerate(self._models)]
            first, *others = members
            steps = [Step(first, "Make `rows`.", gives="rows")]
            steps += [Step(each, "Add one to `rows`.", takes="rows", gives="rows") for each in others]
            began = time.perf_counter()
            outcome = await reduce(rshift, steps).run()
            elapsed = time.perf_counter() - began
            if outcome.reference.size < 8 * self._items:
                raise CellFailedError(f"{outcome.reference!r} came out")
            last = await members[-1].runtime.execute("float(rows[-1])")
            return float(last.value or "nan"), elapsed

    @property
    def prompted(self) -> int:
        """Bytes of all prompts."""
        prompts = [prompt for model in self._models for prompt in model.prompts]
        return sum(len(message.content.encode()) for prompt in prompts for message in prompt)


def run_pipeline(service: AnyService, parameters: Parameters) -> dict[str, float]:
    """`prompts less` is the reduction of prompt bytes when the passed value is a thousandth of the size: prompts
    hold names, types and shapes, which differ by a few digits.
    """
    os.environ["CENOTE_ADDRESS"] = service.address
    line = _Line(parameters.agents, parameters.small)
    little = _Line(parameters.agents, parameters.small // 1000)
    last, elapsed = asyncio.run(line.run())
    asyncio.run(little.run())
    if last != parameters.agents - 1:
        raise CellFailedError(f"the last of {parameters.agents} agents had {last}")
    return {
        "agents": parameters.agents,
        "end to end": elapsed,
        "handed on": (parameters.agents - 1) * parameters.small,
        "prompts": line.prompted,
        "prompts less": line.prompted - little.prompted,
    }


MEASURES = (
    Measure(
        name="pipeline",
        title="agents in a line, each changing an array of 8 MB for the next; bytes handed on, and in all prompts",
        run=run_pipeline,
        figures={
            "agents": Unit.COUNT,
            "end to end": Unit.SECONDS,
            "handed on": Unit.BYTES,
            "prompts": Unit.BYTES,
            "prompts less": Unit.BYTES,
        },
        rounds=1,
        only=("cenote",),
    ),
)
