"""Runtimes of the CaveAgent library: its protocols, and Cenote's jails under its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from cenote import runtime
from cenote.runtime import (
    ErrorFeedbackMode,
    IPyKernelRuntime,
    IPythonRuntime,
    RuntimeExecutionError,
    RuntimeStateLostError,
)
from cenote.runtime import TextResult as ExecutionResult
from cenote.runtime.faces.listing import doc_of, function_text, signature_of, type_text, variable_text

__all__ = [
    "BaseRuntime",
    "ErrorFeedbackMode",
    "ExecutionResult",
    "Function",
    "IPyKernelRuntime",
    "IPythonRuntime",
    "PreemptibleRuntime",
    "Runtime",
    "RuntimeExecutionError",
    "RuntimeStateLostError",
    "Type",
    "Variable",
]

BaseRuntime = IPythonRuntime
"""What its runtimes have in common; here there is one kind."""


class Function(runtime.Function):
    """A function, by value; `host=True` keeps it in the client."""

    @property
    def signature(self) -> str:
        return signature_of(self)

    @property
    def doc(self) -> str | None:
        return doc_of(self)

    def __str__(self) -> str:
        return function_text(self)


class Variable(runtime.Variable):
    """A value, by value; `host=True` keeps it in the client."""

    @property
    def type_name(self) -> str:
        return type(self.value).__name__

    @property
    def declared_type(self) -> type | None:
        return None if self.value is None else type(self.value)

    def __str__(self) -> str:
        return variable_text(self)


class Type(runtime.Type):
    """A class, by value."""

    def __str__(self) -> str:
        return type_text(self)


@runtime_checkable
class Runtime(Protocol):
    """What that library's agent needs of a runtime."""

    async def execute(self, code: str) -> Any: ...

    async def retrieve(self, name: str) -> Any: ...

    async def reset(self) -> None: ...

    async def bind_unique(self, prefix: str, value: Any, *, start: int = 1) -> str: ...

    def inject_function(self, function: Any) -> None: ...

    def inject_variable(self, variable: Any) -> None: ...

    def inject_type(self, type_obj: Any) -> None: ...

    @property
    def inject_resources(self) -> Callable[..., None]: ...

    def inject_into_namespace(self, name: str, value: Any, *, replace: bool = True) -> None: ...

    async def get_from_namespace(self, name: str) -> Any: ...

    def describe_functions(self) -> str: ...

    def describe_variables(self) -> str: ...

    def describe_types(self) -> str: ...


@runtime_checkable
class PreemptibleRuntime(Runtime, Protocol):
    """A runtime whose cell can be ended, as each of Cenote's can."""

    async def interrupt(self) -> None: ...
