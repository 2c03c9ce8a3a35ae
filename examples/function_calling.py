"""Functions as tools: they run in the agent's jail, on variables that persist between requests."""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import Function, PythonRuntime, Variable

Task = dict[str, object]

SCRIPT = [
    "```python\nadd_task(tasks, 'buy groceries')\nadd_task(tasks, 'call the plumber')\nprint(tasks)\n```",
    "Both are on your list.",
    "```python\ndone = complete_task(tasks, 'buy groceries')\nprint(done, tasks)\n```",
    "Groceries are ticked off; the plumber is still to be called.",
]


def add_task(tasks: list[Task], name: str) -> None:
    """Add a task that is not done yet"""
    tasks.append({"name": name, "done": False})


def complete_task(tasks: list[Task], name: str) -> bool:
    """Mark a task as done; False if there is none of that name"""
    found = [task for task in tasks if task["name"] == name]
    for task in found:
        task["done"] = True
    return bool(found)


async def main() -> None:
    runtime = PythonRuntime(
        variables=[Variable("tasks", [], "User's task list")],
        functions=[Function(add_task), Function(complete_task)],
    )
    with runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        for request in ("Add 'buy groceries' and 'call the plumber' to my tasks", "I bought the groceries"):
            response = await agent.run(request)
            print("user:", request)
            print("agent:", response.content)
            print("tasks:", runtime.retrieve("tasks"))


asyncio.run(main())
