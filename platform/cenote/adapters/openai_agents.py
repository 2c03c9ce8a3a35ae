"""OpenAI Agents SDK: a runtime as the tool `python` of an agent.

from cenote.adapters.openai_agents import PythonCapability, python_tool
Agent(name=..., tools=[python_tool(runtime)])
SandboxAgent(name=..., capabilities=[*Capabilities.default(), PythonCapability()])

`PythonCapability()` takes the runtime of the agent's session, which is one of `CenoteSandboxClient`
(openai_agents_sandbox.py); `PythonCapability.over(runtime)` takes any runtime, beside any session.
"""

from __future__ import annotations

from typing import Any, Literal

from cenote.adapters.agent_namespace import AnyRuntime, PythonTool
from cenote.adapters.openai_agents_sandbox import runtime_of
from cenote_security.errors import CenoteError, UsageError
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
    """The same tool as a capability of a SandboxAgent: over the runtime of its session, which has the same files as
    its shell, or over another one.

    timeout: seconds for one call.
    """

    type: Literal["python"] = "python"
    timeout: float | None = None
    # A FunctionTool, whose annotations pydantic cannot read. Without one, the session has the runtime.
    tool: Any = None

    @classmethod
    def over(cls, runtime: AnyRuntime, *, timeout: float | None = None) -> PythonCapability:
        return cls(tool=python_tool(runtime, timeout=timeout), timeout=timeout)

    def tools(self) -> list[Any]:
        """Raises UsageError without a runtime: the session is of another client, and none was given."""
        if self.tool is not None:
            return [self.tool]
        runtime = runtime_of(self.session)
        if runtime is None:
            raise UsageError(
                "PythonCapability() takes the runtime of a session of CenoteSandboxClient; beside a session of "
                "another client, give it one with PythonCapability.over(runtime)"
            )
        return [python_tool(runtime, timeout=self.timeout)]

    async def instructions(self, manifest: Any) -> str | None:
        if self.tool is None:
            return "The tool `python` has the files of the shell, in the same working directory."
        return (
            f"The tool `{self.tool.name}` has a namespace of its own: its files are not those of the shell."
        )
