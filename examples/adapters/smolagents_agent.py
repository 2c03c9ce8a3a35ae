"""A smolagents CodeAgent cleans a table in three turns; the second turn is taken back.

python examples/adapters/smolagents_agent.py        needs `pip install 'cenote[data,smolagents]'`
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, tool

from cenote import PythonRuntime, Variable
from cenote.adapters.smolagents import CenoteExecutor

ORDERS = pd.DataFrame(
    {
        "id": [1, 2, 2, 3, 4],
        "city": ["Oslo", "oslo ", "oslo ", "Bergen", None],
        "paid": [10.0, None, None, 30.0, 20.0],
    }
)

CODE = [
    "orders = orders.drop_duplicates()\nfinal_answer(len(orders))",
    "orders = orders.dropna()\nfinal_answer(len(orders))",
    "orders['city'] = orders.city.str.strip().str.title().fillna(usual_city())\n"
    "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
    "final_answer(orders.groupby('city').paid.sum().to_dict())",
]


class Scripted(Model):
    """Answers with these codes in order."""

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{CODE.pop(0)}\n</code>")


@tool
def usual_city() -> str:
    """The city of an order that names none; this function runs in your process."""
    return "Oslo"


with PythonRuntime(variables=[Variable("orders", ORDERS)]) as runtime:
    agent = CodeAgent(
        tools=[usual_city],
        model=Scripted(),
        executor=CenoteExecutor(runtime, timeout=30),
        additional_authorized_imports=["pandas"],
        verbosity_level=LogLevel.OFF,
    )
    print("rows without repetitions:", agent.run("Drop repeated orders."))
    before = runtime.snapshot("before dropping")
    print("rows that are complete:", agent.run("Drop what is missing.", reset=False))
    runtime.rollback(before)  # too much is lost
    print("paid:", agent.run("Fill in what is missing, and sum up by city.", reset=False))
