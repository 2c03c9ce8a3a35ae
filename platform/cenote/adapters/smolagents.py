"""smolagents: a runtime as the executor of a `CodeAgent`.

from cenote.adapters.smolagents import CenoteExecutor
agent = CodeAgent(tools=[...], model=..., executor=CenoteExecutor(), additional_authorized_imports=["*"])
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from cenote.adapters.agent_namespace import AgentNamespace, AnyRuntime, failure, printed
from cenote_security.errors import CenoteError
from cenote_security.extras import importing
from cenote_worker.execution.results import ExecutionResult

with importing("the adapter for smolagents", "smolagents"):
    from smolagents import Tool
    from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

_ENDING = "final_answer"


class CenoteExecutor(PythonExecutor):
    """Runs the code of a CodeAgent in a runtime, whose namespace stays from step to step and from run to run.

    Tools and managed agents run in this process. The agent's final answer comes out as `retrieve` gives it: plain
    data, arrays and frames.

    runtime: of the caller, who closes it; without one, a new one with `options` of PythonRuntime, which `cleanup`
    ends. timeout: seconds for one step.
    """

    def __init__(
        self, runtime: AnyRuntime | None = None, *, timeout: float | None = None, **options: Any
    ) -> None:
        self._namespace = AgentNamespace(runtime, ending=_ENDING, timeout=timeout, **options)
        self._tools: dict[str, Callable[..., Any]] = {}
        self.state: dict[str, Any] = {}
        """What smolagents reads of an executor whose code has failed: what was printed until then."""

    @property
    def runtime(self) -> Any:
        return self._namespace.runtime

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Before each run: the tools and managed agents of the agent."""
        self._namespace.offer({name: _callable(tool) for name, tool in tools.items() if name != _ENDING})
        self._tools = dict(tools)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        self._namespace.put(variables)

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs one step. Raises InterpreterError, whose text the agent gives to its model, for code that fails."""
        self.state = {}
        try:
            result = self._namespace.run(code_action)
            logs = printed(_without_value(result), code_action)
            self.state["_print_outputs"] = logs
            if not result.success:
                raise InterpreterError(failure(result, code_action))
            ended = self._namespace.ended(result)
        except CenoteError as error:
            raise InterpreterError(str(error)) from error
        if ended is None:
            return CodeOutput(output=result.value, logs=logs, is_final_answer=False)
        tool = self._tools.get(_ENDING, _identity)
        return CodeOutput(output=tool(*ended.args, **ended.kwargs), logs=logs, is_final_answer=True)

    def cleanup(self) -> None:
        self._namespace.close()


def _callable(tool: Callable[..., Any]) -> Callable[..., Any]:
    """A tool as a function with the signature of what it does, which the error of a wrong call shows."""
    if not isinstance(tool, Tool):
        return tool

    @functools.wraps(tool.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        return tool(*args, **kwargs)

    call.__doc__ = tool.description
    signature = inspect.signature(tool.forward)
    # That of a decorated function is said to have `self`, although it is bound.
    named = [each for each in signature.parameters.values() if each.name != "self"]
    call.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return call


def _identity(answer: Any = None) -> Any:
    return answer


def _without_value(result: ExecutionResult) -> ExecutionResult:
    """smolagents shows the value of the last expression by itself."""
    return dataclasses.replace(result, value=None)
