"""One task, four attempts from the same state, and a verifier that keeps the best. Offline: the model is a script.

python examples/branches.py
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from cenote import CaveAgent, PythonRuntime, Variable
from cenote.models import Message, ScriptedModel
from cenote.runtime import FinalState

WEIGHTS = [7, 4, 9, 3, 8]
LIMIT = 20


def packing_model() -> ScriptedModel:
    """Packs greedily, in a different order of the weights in each branch."""
    orders = itertools.cycle(["weights", "sorted(weights)", "sorted(weights)[::-1]", "weights[::-1]"])

    def answer(messages: Sequence[Message]) -> str:
        if "Output:" in messages[-1].content:
            return "Packed."
        return (
            "```python\npacked = []\n"
            f"for weight in {next(orders)}:\n"
            "    if sum(packed) + weight <= limit:\n        packed.append(weight)\n"
            "print(packed)\n```"
        )

    return ScriptedModel([answer] * 8)


def full(state: FinalState) -> float:
    """The packed weight; zero if it exceeds the limit or is missing."""
    packed = state.retrieve("packed")
    return float(sum(packed)) if sum(packed) <= LIMIT and set(packed) <= set(WEIGHTS) else 0.0


async def main() -> None:
    """Prints all scores, and the variables of the runtime that was kept."""
    with PythonRuntime(variables=[Variable("weights", WEIGHTS), Variable("limit", LIMIT)]) as runtime:
        agent = CaveAgent(packing_model(), runtime)
        response = await agent.branch("Pack as much as you can.", n=4, score=full)
        print("scores:", sorted(outcome.score or 0.0 for outcome in response.branches))
        with agent.runtime as best:
            print("kept:", response.score, best.retrieve("packed"))


if __name__ == "__main__":
    asyncio.run(main())
