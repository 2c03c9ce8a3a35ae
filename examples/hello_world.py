"""The smallest agent: it reads one variable, calls one function and leaves its result in another variable."""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import Function, PythonRuntime, Variable

SCRIPT = [
    "```python\ngreeting = reverse(secret)\nprint(greeting)\n```",
    "I reversed the secret and stored it in `greeting`: Hello, world!",
]


def reverse(s: str) -> str:
    """Reverse a string"""
    return s[::-1]


async def main() -> None:
    runtime = PythonRuntime(
        variables=[
            Variable("secret", "!dlrow ,olleH", "A reversed message"),
            Variable("greeting", "", "Store the reversed message"),
        ],
        functions=[Function(reverse)],
    )
    with runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        response = await agent.run("Reverse the secret")
        print("greeting:", runtime.retrieve("greeting"))
        print("answer:", response.content)


asyncio.run(main())
