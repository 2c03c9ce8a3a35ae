"""An agent of the OpenAI Agents SDK cleans a table in three turns; the second turn is taken back.

python examples/adapters/openai_agents_tool.py        needs `pip install 'cenote[data,openai_agents]'`
"""

from __future__ import annotations

import pandas as pd
from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from cenote import Function, PythonRuntime, Variable
from cenote.adapters.openai_agents import python_tool

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


set_tracing_disabled(True)
with PythonRuntime(
    variables=[Variable("orders", ORDERS)], functions=[Function(usual_city, host=True)]
) as runtime:

    def ask(task: str) -> str:
        script = [[function_call("python", {"code": CODE.pop(0)}, call_id="1")], [assistant_message("done")]]
        agent = Agent(name="cleaner", model=ScriptedModel(script), tools=[python_tool(runtime, timeout=30)])
        done = Runner.run_sync(agent, task)
        return next(str(item.output) for item in done.new_items if item.type == "tool_call_output_item")

    first, second, third = TURNS
    print("rows without repetitions:", ask(first))
    before = runtime.snapshot("before dropping")
    print("rows that are complete:", ask(second))
    runtime.rollback(before)  # too much is lost
    print("paid:", ask(third))
