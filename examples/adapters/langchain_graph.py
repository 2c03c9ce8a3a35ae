"""A LangGraph agent cleans a table in three turns; the third continues from the checkpoint before the second.

python examples/adapters/langchain_graph.py        needs `pip install 'cenote[data,langchain]'`
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from cenote import Function, PythonRuntime, Variable
from cenote.adapters.langchain import CenoteMiddleware

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


class Scripted(BaseChatModel):
    """Calls the tool with these codes in order, and answers with the tool's output."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = AIMessage(messages[-1].content)
        if not isinstance(messages[-1], ToolMessage):
            call = {"name": "python", "args": {"code": CODE.pop(0)}, "id": f"call {len(CODE)}"}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


def ask(task: str, config: dict[str, Any]) -> str:
    state = graph.invoke({"messages": [{"role": "user", "content": task}]}, config)
    return str(state["messages"][-1].content)


with PythonRuntime(
    variables=[Variable("orders", ORDERS)], functions=[Function(usual_city, host=True)]
) as runtime:
    graph = create_agent(Scripted(), middleware=[CenoteMiddleware(runtime)], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "orders"}}
    first, second, third = TURNS
    print("rows without repetitions:", ask(first, thread))
    before = graph.get_state(thread).config
    print("rows that are complete:", ask(second, thread))
    print(
        "paid:", ask(third, before)
    )  # too much is lost: continue from the checkpoint, and so from its table
