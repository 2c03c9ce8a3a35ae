"""The CaveAgent library's own agent in Cenote's jails: its complete `Runtime` protocol.

python -m tests.peers.driven        in an environment that has that library, too
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import cave_agent
from cave_agent.events import ExecutionResultEvent, ExecutionTimeoutEvent, SecurityErrorEvent
from cave_agent.models import Model, ModelResponse, StreamResponse
from cave_agent.runtime import Function, PreemptibleRuntime, Type, Variable

from cenote.cave_agent import IPyKernelRuntime, IPythonRuntime
from cenote.security import ImportRule, SecurityChecker


class Scripted(Model):  # type: ignore[misc]
    """Answers in the order given."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.seen: list[Any] = []

    async def _complete(self, messages: Any) -> Any:
        return ModelResponse(self.answers.pop(0), finish_reason="stop")

    def stream(self, messages: Any) -> Any:
        self.seen.append(messages)
        text = self.answers.pop(0)

        class Answer(StreamResponse):  # type: ignore[misc]
            async def _open_stream(self) -> AsyncIterator[Any]:
                async def chunks() -> AsyncIterator[Any]:
                    for content, reason in ((text, None), (None, "stop")):
                        delta = SimpleNamespace(content=content, refusal=None)
                        yield SimpleNamespace(
                            usage=None, choices=[SimpleNamespace(finish_reason=reason, delta=delta)]
                        )

                return chunks()

        return Answer()


def block(code: str) -> str:
    return f"```python\n{code}\n```"


class Point:
    """A place."""

    def __init__(self, x: int) -> None:
        self.x = x


def double(x: int) -> int:
    """Twice x."""
    return 2 * x


async def main() -> None:
    things: dict[str, Any] = {
        "functions": [Function(double)],
        "variables": [Variable("secret", "olleh", "Reversed.")],
        "types": [Type(Point)],
    }
    async with IPythonRuntime() as runtime:
        runtime.inject_resources(**things)
        assert isinstance(runtime, PreemptibleRuntime)
        model = Scripted(block("secret = secret[::-1]\nprint(double(21), Point(3).x)"), "done")
        response = await cave_agent.CaveAgent(model, runtime=runtime).run("Turn it round.")
        assert (response.completed, response.content) == (True, "done")
        assert "hello" == await runtime.retrieve("secret")
        assert any("42 3" in message["content"] for message in model.seen[-1])
        assert "double(x" in model.seen[0][0]["content"]

        long = Scripted(block("print('x' * 9000)"), block("print(len(_output_1))"), "done")
        events = [e async for e in cave_agent.CaveAgent(long, runtime=runtime).stream_events("Print.")]
        outputs = [e for e in events if isinstance(e, ExecutionResultEvent)]
        assert outputs[0].persisted_variable == "_output_1", outputs[0]
        assert outputs[1].output.strip() == "9001"

        failing = Scripted(block("1/0"), "it failed")
        events = [e async for e in cave_agent.CaveAgent(failing, runtime=runtime).stream_events("Divide.")]
        (failed,) = [e for e in events if isinstance(e, ExecutionResultEvent)]
        assert not failed.success
        assert "ZeroDivisionError" in failed.output

        skill = cave_agent.Skill("greeting", "How to greet.", "Say hello to all.", functions=[Function(hail)])
        skilled = Scripted(block("print(activate_skill('greeting'), hail('you'))"), "done")
        agent = cave_agent.CaveAgent(skilled, runtime=runtime, skills=[skill])
        events = [e async for e in agent.stream_events("Greet.")]
        (greeted,) = [e for e in events if isinstance(e, ExecutionResultEvent)]
        assert "Say hello to all. hail, you" in greeted.output

    async with IPyKernelRuntime(security_checker=SecurityChecker([ImportRule({"os"})])) as runtime:
        endless = Scripted(block("kept = 1"), block("while True: pass"), block("print(kept)"), "done")
        agent = cave_agent.CaveAgent(endless, runtime=runtime, max_exec_timeout=1.0)
        events = [e async for e in agent.stream_events("Loop.")]
        assert [e for e in events if isinstance(e, ExecutionTimeoutEvent)]
        assert [e for e in events if isinstance(e, ExecutionResultEvent)][-1].output.strip() == "1"

        refused = Scripted(block("import os"), "no")
        events = [e async for e in cave_agent.CaveAgent(refused, runtime=runtime).stream_events("Import.")]
        told = [e for e in events if isinstance(e, ExecutionResultEvent | SecurityErrorEvent)]
        assert "os" in str(told[0])
    print(f"cave-agent's agent works in Cenote's jails ({cave_agent.__file__})")


def hail(name: str) -> str:
    return f"hail, {name}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
