"""pydantic-ai's E2B workspace: its wheel's suite for backends, and an agent with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_harness.coder import Coder
from pydantic_ai_harness.e2b_sandbox import E2BSandbox, E2BSandboxBackend
from pydantic_ai_harness.e2b_sandbox._backend import kill_sandbox


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def destroy(backend: WorkspaceBackend) -> None:
    assert backend.ref is not None
    await kill_sandbox(backend.ref.id)


class TestWorkspace(WorkspaceBackendSuite):
    """pydantic-ai's own suite."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[E2BSandboxBackend]:
        made = E2BSandboxBackend()
        yield made
        if made.ref is not None:
            await destroy(made)

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return True

    @pytest.fixture
    def fresh_backend(self) -> Callable[[], E2BSandboxBackend]:
        return E2BSandboxBackend

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], E2BSandboxBackend]:
        return lambda ref: E2BSandboxBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        return destroy


@pytest.mark.anyio
async def test_an_agent_works_in_a_sandbox() -> None:
    """It writes a program, runs it, and sees what it prints."""
    calls = [
        ("write_file", {"path": "six.py", "content": "print(6 * 7)\n"}),
        ("shell", {"command": "python3 six.py"}),
    ]
    returned = list[Any]()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned.extend(part for part in messages[-1].parts if isinstance(part, ToolReturnPart))
        if not calls:
            return ModelResponse(parts=[TextPart("done")])
        name, arguments = calls.pop(0)
        names = [tool.name for tool in info.function_tools]
        (tool,) = [each for each in names if each == name] or [each for each in names if name in each]
        return ModelResponse(parts=[ToolCallPart(tool, arguments)])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        (part,) = answer(messages, info).parts
        if isinstance(part, TextPart):
            yield part.content
        else:
            yield {0: DeltaToolCall(name=part.tool_name, json_args=json.dumps(part.args))}

    agent = Agent(FunctionModel(answer, stream_function=stream), capabilities=[E2BSandbox(), Coder()])
    result = await agent.run("Compute.")
    assert result.output == "done"
    assert "42" in str(returned[-1].content)
