"""OpenAI Agents SDK: a runtime as the tool `python` of an agent.

from cenote.adapters.openai_agents import PythonCapability, python_tool
Agent(name=..., tools=[python_tool(runtime)])
SandboxAgent(name=..., capabilities=[*Capabilities.default(), PythonCapability.over(runtime)])
"""

from __future__ import annotations

from typing import Any, Literal

from cenote.adapters.agent_namespace import AnyRuntime, PythonTool
from cenote_security.errors import CenoteError
from cenote_security.extras import importing

with importing("the adapter for the OpenAI Agents SDK", "openai_agents"):
    from agents import FunctionTool, ModelBehaviorError, default_tool_error_function, function_tool
    from agents.sandbox.capabilities import Capability


def python_tool(runtime: AnyRuntime, *, timeout: float | None = None, name: str = "python") -> FunctionTool:
    """A tool that runs code in a runtime; its namespace stays from call to call, and from run to run.

    Several agents may have tools over one runtime: give each `runtime.attach(its_name)`. An error of the code, or of
    a limit, is the tool's answer. timeout: seconds for one call.
    """
    cells = PythonTool(runtime, timeout=timeout)

    async def python(code: str) -> str:
        return await cells.run(code)

    return function_tool(
        python,
        name_override=name,
        description_override=PythonTool.description,
        failure_error_function=_told,
    )


def _told(context: Any, error: Exception) -> str:
    """What a model reads of a call that ran no code. The SDK's own text does not say why."""
    if isinstance(error, CenoteError | ModelBehaviorError):
        return f"The code was not run: {error}"
    return str(default_tool_error_function(context, error))


class PythonCapability(Capability):
    """The same tool as a capability of a SandboxAgent, beside its shell and files, which are not the runtime's."""

    type: Literal["python"] = "python"
    tool: Any  # a FunctionTool, whose annotations pydantic cannot read

    @classmethod
    def over(cls, runtime: AnyRuntime, *, timeout: float | None = None) -> PythonCapability:
        return cls(tool=python_tool(runtime, timeout=timeout))

    def tools(self) -> list[Any]:
        return [self.tool]

    async def instructions(self, manifest: Any) -> str | None:
        return (
            f"The tool `{self.tool.name}` has a namespace of its own: its files are not those of the shell."
        )
