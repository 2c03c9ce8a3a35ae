"""An agent in another agent's namespace: what of it can be called from there."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cenote.runtime.injectables import Variable
from cenote.runtime.references import Sealed
from cenote_security.errors import UnknownNameError

if TYPE_CHECKING:
    from cenote.runtime.host_desk import Target


def is_agent(value: object) -> bool:
    """Whether the value is an agent: something that runs tasks on a runtime of its own."""
    return inspect.iscoroutinefunction(getattr(type(value), "run", None)) and hasattr(type(value), "runtime")


def sub_agent_targets(agent: Any) -> dict[str, Target]:
    """What an orchestrator's code may call, by method name. Values pass sealed, from jail to jail."""

    async def run(task: str) -> tuple[str, str, int]:
        response = await agent.run(str(task))
        return (
            str(response.content),
            str(getattr(response.status, "value", response.status)),
            response.steps_taken,
        )

    def update_variable(name: str, value: Sealed) -> None:
        runtime = _blocking(agent)
        try:
            runtime.update_variable(name, value.reference)
        # Whoever hands over data need not have been foreseen by whoever made the agent.
        except UnknownNameError:
            runtime.inject(Variable(name, value.reference))

    def retrieve(name: str) -> Sealed:
        return Sealed(_blocking(agent).share(name))

    def share(name: str) -> object:
        return _blocking(agent).share(name)

    def describe() -> list[dict[str, object]]:
        return [
            {"name": info.name, "type": info.type, "shape": info.shape, "description": info.description}
            for info in _blocking(agent).describe()
        ]

    return {
        "run": run,
        "runtime.update_variable": update_variable,
        "runtime.retrieve": retrieve,
        "runtime.share": share,
        "runtime.describe": describe,
    }


def _blocking(agent: Any) -> Any:
    """The agent's runtime with calls that block; host calls have a thread to do so."""
    from cenote.runtime.sync import PythonRuntime

    return PythonRuntime.over(agent.runtime.core)
