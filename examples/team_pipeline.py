"""Twenty agents in sequence, each in its own jail: an array is passed on by reference.

Prompts carry names, types and shapes only; the program prints how much data went through prompts and how much did
not. All calls share one budget, which each reserves from before it is made.
"""

from __future__ import annotations

import asyncio
from functools import reduce
from operator import rshift

from model_choice import choose_model

from cenote import Budget, Team, Variable
from cenote.team import Step

STAGES = 20
READINGS = 500_000

SOURCE = [
    f"```python\nimport numpy\nreadings = numpy.arange({READINGS}, dtype=float)\nshow(readings.shape)\n```",
    "The readings are in `readings`.",
]
STAGE = [
    "```python\nimport numpy\nsmoothed = (readings + numpy.roll(readings, 1)) / 2\nprint(smoothed.shape)\n```",
    "Each reading is now the mean of itself and the one before it.",
]


async def main() -> None:
    async with Team("smoothing", budget=Budget(tokens=400_000, agents=STAGES)) as team:
        source = team.add("source", model=choose_model(SOURCE))
        stages = [
            Step(source, "Make an array `readings` of half a million floats, 0, 1, 2 ...", gives="readings")
        ]
        for number in range(1, STAGES):
            agent = team.add(
                f"smoother_{number}",
                model=choose_model(STAGE),
                variables=[Variable("readings", None, "an array of floats")],
            )
            task = "Put the mean of each of `readings` and the one before it into `smoothed`."
            stages.append(Step(agent, task, takes="readings", gives="smoothed"))
        outcome = await reduce(rshift, stages).run()

        print("agents:", len(team.members))
        print("result:", outcome.reference)
        print(f"from jail to jail: {STAGES * outcome.reference.size / 1e6:.0f} MB")
        prompts = sum(agent.meter.prompt_bytes for agent in team.members.values())
        calls = sum(agent.meter.calls for agent in team.members.values())
        print(f"through prompts: {prompts / 1e3:.0f} kB in {calls} calls, metadata only")
        print(f"tokens: {team.spent.tokens}, left: {team.remaining.tokens}")


asyncio.run(main())
