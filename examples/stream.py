"""Events while an agent works: its text, the code it runs, and the results."""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import PythonRuntime, Variable

SCRIPT = [
    "The mean first.\n```python\nmean = sum(sales) / len(sales)\nprint(f'mean {mean:.1f}')\n```",
    "Now the best day.\n```python\nbest = sales.index(max(sales)) + 1\nprint('best day', best)\n```",
    "The mean is 126.4 a day, and the fourth day was the best.",
]


async def main() -> None:
    runtime = PythonRuntime(variables=[Variable("sales", [120, 98, 143, 170, 101], "Sales of five days")])
    with runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        async for event in agent.stream_events("Analyze this data"):
            if event.type.value == "code":
                print(f"\nExecuting: {event.content}")
            elif event.type.value == "execution_output":
                print(f"Result: {event.content}")
            elif event.type.value == "text":
                print(event.content, end="", flush=True)
        print()


asyncio.run(main())
