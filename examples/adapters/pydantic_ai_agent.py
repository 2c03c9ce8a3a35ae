"""A pydantic-ai agent cleans a table in three turns; the second turn is taken back.

python examples/adapters/pydantic_ai_agent.py        needs `pip install 'cenote[data,pydantic_ai]'`
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel

from cenote import Function, PythonRuntime, Variable
from cenote.adapters.pydantic_ai import CenoteToolset

ORDERS = pd.DataFrame(
    {
        "id": [1, 2, 2, 3, 4],
        "city": ["Oslo", "oslo ", "oslo ", "Bergen", None],
        "paid": [10.0, None, None, 30.0, 20.0],
    }
)

TURNS = {
    "Drop repeated orders.": "orders = orders.drop_duplicates()\nlen(orders)",
    "Drop what is missing.": "orders = orders.dropna()\nlen(orders)",
    "Fill in what is missing, and sum up by city.": (
        "orders['city'] = orders.city.str.strip().str.title().fillna(usual_city())\n"
        "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
        "orders.groupby('city').paid.sum().to_dict()"
    ),
}
CODE = list(TURNS.values())


def usual_city() -> str:
    """The city of an order that names none; this function runs in your process."""
    return "Oslo"


def scripted(messages: list[ModelMessage], _: Any) -> ModelResponse:
    """Calls the tool with these codes in order, and answers with the tool's output."""
    last = messages[-1]
    for part in last.parts if isinstance(last, ModelRequest) else ():
        if isinstance(part, ToolReturnPart):
            return ModelResponse(parts=[TextPart(str(part.content))])
    return ModelResponse(parts=[ToolCallPart("python", {"code": CODE.pop(0)})])


with PythonRuntime(
    variables=[Variable("orders", ORDERS)], functions=[Function(usual_city, host=True)]
) as runtime:
    agent = Agent(FunctionModel(scripted), toolsets=[CenoteToolset(runtime, timeout=30)])
    first, second, third = TURNS
    print("rows without repetitions:", agent.run_sync(first).output)
    before = runtime.snapshot("before dropping")
    print("rows that are complete:", agent.run_sync(second).output)
    runtime.rollback(before)  # too much is lost
    print("paid:", agent.run_sync(third).output)
