"""Rules give a model early feedback: code that they refuse does not run, and the model reads why.

They are advice, not isolation. The jail isolates: without any rule, the same code would find no file of yours, no
network and no process but its own.
"""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import Function, PythonRuntime
from cenote.security import AttributeRule, FunctionRule, ImportRule, RegexRule, SecurityChecker

SCRIPT = [
    "I look into the file.\n```python\nimport os\nprint(os.listdir('/etc'))\n```",
    "```python\nprint(eval('read_note.__globals__'))\n```",
    "Then with the function that I was given.\n```python\nprint(read_note('shopping'))\n```",
    "Your shopping note says: milk, bread.",
]
NOTES = {"shopping": "milk, bread"}


def read_note(name: str) -> str:
    """Read one of the user's notes"""
    return NOTES[name]


async def main() -> None:
    rules = [
        ImportRule({"os", "subprocess", "sys"}),
        FunctionRule({"eval", "exec", "open"}),
        AttributeRule({"__globals__", "__builtins__"}),
        RegexRule(r"password|secret_key", "Code must not speak of credentials"),
    ]
    runtime = PythonRuntime(functions=[Function(read_note)], security_checker=SecurityChecker(rules))
    with runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        async for event in agent.stream_events("What is on my shopping note?"):
            if event.type.value in ("security_error", "execution_output", "final_response"):
                print(f"{event.type.value}: {event.content}")


asyncio.run(main())
