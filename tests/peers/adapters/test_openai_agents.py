"""The OpenAI Agents SDK runs agents whose tool `python` is a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cenote import AsyncPythonRuntime, Function, PythonRuntime, SandboxPolicy

pytest.importorskip("agents", reason="needs openai-agents: `make test-peers` has it")

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from cenote.adapters.openai_agents import PythonCapability, python_tool

set_tracing_disabled(True)


@pytest.fixture
async def runtime() -> AsyncIterator[AsyncPythonRuntime]:
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(memory="512MiB")) as runtime:
        yield runtime


def calls(*codes: str) -> ScriptedModel:
    steps: list[Any] = [
        [function_call("python", {"code": code}, call_id=f"c{at}")] for at, code in enumerate(codes)
    ]
    return ScriptedModel([*steps, [assistant_message("done")]])


async def outputs(agent: Agent[Any]) -> list[str]:
    """The outputs of each call as shown to the model."""
    done = await Runner.run(agent, "Work.")
    assert "done" == done.final_output
    return [str(item.output) for item in done.new_items if item.type == "tool_call_output_item"]


def agent_of(runtime: Any, *codes: str, **options: Any) -> Agent[Any]:
    return Agent(name="worker", model=calls(*codes), tools=[python_tool(runtime, **options)])


async def test_the_namespace_stays(runtime: AsyncPythonRuntime) -> None:
    """It persists from call to call, and for the next agent."""
    assert ["(no output)", "2"] == await outputs(agent_of(runtime, "x = 1", "x + 1"))
    assert ["1"] == await outputs(agent_of(runtime, "x"))


async def test_what_fails_is_the_answer_of_the_tool(runtime: AsyncPythonRuntime) -> None:
    """The run continues, with the namespace."""

    def helper(x: int) -> int:
        raise ValueError(f"{x} is negative")

    await runtime.inject(Function(helper, host=True))
    codes = (
        "y = 5\n1/0",
        "helper(-1)",
        "while True: pass",
        "import os\nos._exit(3)",
        "b = bytearray(2**31)",
        "y",
    )
    told = await outputs(agent_of(runtime, *codes, timeout=1))
    signs = ("ZeroDivisionError", "ValueError: -1 is negative", "ran longer than 1 s", "as it was before this code",
             "MemoryError", "5")  # fmt: skip
    assert [] == [(sign, text) for sign, text in zip(signs, told, strict=True) if sign not in text]


async def test_arguments_that_do_not_fit(runtime: AsyncPythonRuntime) -> None:
    """A model's wrong call gets an answer, and nothing runs."""
    wrong = ScriptedModel(
        [[function_call("python", {"text": "1"}, call_id="c")], [assistant_message("done")]]
    )
    (told,) = await outputs(Agent(name="worker", model=wrong, tools=[python_tool(runtime)]))
    assert "code" in told
    assert 0 == len(runtime.state.steps)


async def test_two_agents_over_one_runtime(runtime: AsyncPythonRuntime) -> None:
    """They run concurrently, each with its name on its steps."""
    teams = [agent_of(await runtime.attach(name), f"{name} = 1", f"{name} + 1") for name in ("one", "two")]
    assert [["(no output)", "2"]] * 2 == await asyncio.gather(*map(outputs, teams))
    assert {"one", "two"} == {step.author for step in runtime.state.steps}


async def test_a_runtime_that_is_closed() -> None:
    """The error is the tool's answer, as the SDK reports errors of tools."""
    with PythonRuntime() as closed:
        agent = agent_of(closed, "1")
    assert "closed" in (await outputs(agent))[0]


async def test_a_capability(runtime: AsyncPythonRuntime) -> None:
    """It offers the tool to each run of a sandbox agent, which gets a copy of it."""
    capability = PythonCapability.over(runtime)
    copy = capability.clone()
    assert ["python"] == [tool.name for tool in copy.tools()]
    assert copy.tools()[0] is capability.tools()[0]
    assert "namespace" in str(await copy.instructions(None))
