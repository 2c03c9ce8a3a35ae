"""LangChain's `langchain-e2b` for deepagents: LangChain's own suite for sandboxes, and a scripted agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import e2b
import pytest
from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_e2b import E2BSandbox
from langchain_tests import integration_tests as standard


@pytest.fixture(scope="module")
def made() -> Iterator[E2BSandbox]:
    sandbox = e2b.Sandbox.create()
    yield E2BSandbox(sandbox=sandbox)
    sandbox.kill()


class TestSandbox(standard.SandboxIntegrationTests):
    """LangChain's own suite."""

    @pytest.fixture(scope="class")
    def sandbox(self, made: E2BSandbox) -> E2BSandbox:
        return made


class Scripted(BaseChatModel):
    """Calls tools in the order given, then answers."""

    calls: list[tuple[str, dict[str, Any]]]
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked += 1
        message = AIMessage("done")
        if self.calls:
            name, arguments = self.calls.pop(0)
            call = {"name": name, "args": arguments, "id": f"c{self.asked}", "type": "tool_call"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_an_agent_works_in_a_sandbox(made: E2BSandbox) -> None:
    calls = [
        ("write_file", {"file_path": "/home/user/six.py", "content": "print(6 * 7)\n"}),
        ("execute", {"command": "python3 six.py"}),
    ]
    agent = create_deep_agent(model=Scripted(calls=calls), backend=made)
    result = agent.invoke({"messages": [{"role": "user", "content": "Compute."}]})
    outputs = [message.content for message in result["messages"] if isinstance(message, ToolMessage)]
    assert "42" in str(outputs[-1])
