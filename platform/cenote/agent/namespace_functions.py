"""Functions that an agent itself puts into its runtime."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from cenote.agent.port import AgentRuntime
from cenote.runtime.injectables import Effect, Function
from cenote_security.errors import NameExistsError


class NamespaceFunctions:
    """Base of classes whose methods an agent injects as host functions.

    The prompt names them where they are of use, so that they don't stand among the tools.
    """


def is_agents_own(function: Function) -> bool:
    """Whether an agent, this one or another of the same runtime, put this function there."""
    return isinstance(getattr(function.func, "__self__", None), NamespaceFunctions)


async def install(runtime: AgentRuntime, method: Callable[..., object], effect: Effect) -> str:
    """Makes sure that the namespace has a method, and gives its name there.

    That is the method's own name, with a number where it is taken: by a variable of the user's, by code, or by
    another agent of the same runtime.
    """
    for other in runtime.functions:
        if other.func == method:
            return other.name
    for number in count(1):
        name = method.__name__ if number == 1 else f"{method.__name__}_{number}"
        try:
            await runtime.inject(Function(method, name=name, host=True, effect=effect))
        except NameExistsError:
            continue
        return name
    raise AssertionError("there is always another number")
