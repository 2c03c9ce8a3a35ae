"""An Inspect task cleans a table in three turns; the second turn is taken back.

python examples/adapters/inspect_task.py        needs `pip install 'cenote[data,inspect]'`
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, ModelAPI, ModelOutput, modelapi
from inspect_ai.solver import Generate, Solver, TaskState, solver, use_tools
from inspect_ai.util import sandbox

from cenote import Function, Variable
from cenote.adapters.inspect import CenoteSandboxEnvironment, python

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


@modelapi("scripted")
class Scripted(ModelAPI):
    """Calls the tool with these codes in order."""

    async def generate(self, *_: Any, **__: Any) -> ModelOutput:
        return ModelOutput.for_tool_call("scripted", "python", {"code": CODE.pop(0)})

    async def count_text_tokens(self, text: str) -> int:
        return len(text) // 4


@solver
def cleaning() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        runtime = sandbox().as_type(CenoteSandboxEnvironment).runtime
        await runtime.inject(Variable("orders", ORDERS), Function(usual_city, host=True))

        async def ask(task: str) -> str:
            state.messages.append(ChatMessageUser(content=task))
            await generate(state, tool_calls="single")
            return state.messages[-1].text

        first, second, third = TURNS
        print("rows without repetitions:", await ask(first))
        before = await runtime.snapshot("before dropping")
        print("rows that are complete:", await ask(second))
        await runtime.rollback(before)  # too much is lost
        print("paid:", await ask(third))
        return state

    return solve


task = Task(dataset=[Sample("Clean.")], solver=[use_tools(python(timeout=30)), cleaning()], sandbox="cenote")
with TemporaryDirectory() as logs:
    eval(task, model="scripted/model", log_dir=logs, display="none")
