"""An agent repairs one step of an analysis. Independent results are kept; the model reads only what differs.

Writing all steps again would cost the model all of their code.
"""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import PythonRuntime, Variable
from cenote.tokens import count_tokens

SHOWN = ("execution_error", "patch", "execution_output", "final_response")

ORDERS = [
    {"region": "north", "net": 120.0, "tax": 24.0},
    {"region": "south", "net": 90.0, "tax": 18.0},
    {"region": "north", "net": 60.0, "tax": 12.0},
]

SCRIPT = [
    "```python\ndef amount(order):\n    return order['gross']\n\n"
    "regions = sorted({order['region'] for order in orders})\n```",
    "```python\nchecks = [sum(range(100_000)) for _ in regions]\nprint('checked', regions)\n```",
    "```python\ntotals = {r: sum(amount(o) for o in orders if o['region'] == r) for r in regions}\n"
    "print(totals)\n```",
    # The text shown to the model says which step `amount` is from.
    "There is no gross amount; net and tax make it.\n"
    "```patch\nfunction amount: orders have net and tax\n-return order['gross']\n"
    "+return order['net'] + order['tax']\n```",
    "North has 216.0, south 108.0.",
]


async def main() -> None:
    with PythonRuntime(variables=[Variable("orders", ORDERS, "Orders of a day")]) as runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime, patches=True)
        written = 0
        async for event in agent.stream_events("What was sold per region, with tax?"):
            if event.type.value == "patch":
                written += count_tokens(event.content)
            if event.type.value in SHOWN:
                print(f"--- {event.type.value}\n{event.content}")
        print("totals:", runtime.retrieve("totals"))
        for step in runtime.state.steps:
            print(f"step {step.number}: {step.outcome}, by model call {step.cause.rpartition('.')[2]}")
        anew = sum(count_tokens(step.code) for step in runtime.state.steps)
        print(f"tokens: {written} to write the patch, {anew} to write the steps anew")


asyncio.run(main())
