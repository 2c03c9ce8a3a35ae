"""Functions that an agent itself puts into its runtime."""

from __future__ import annotations

from cenote.runtime.injectables import Function


class NamespaceFunctions:
    """Base of classes whose methods an agent injects as host functions.

    The prompt names them where they are of use, so that they don't stand among the tools.
    """


def is_own(function: Function) -> bool:
    """Whether an agent, this one or another of the same runtime, put this function there."""
    return isinstance(getattr(function.func, "__self__", None), NamespaceFunctions)
