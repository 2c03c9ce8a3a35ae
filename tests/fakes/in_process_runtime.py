"""A runtime without a jail: plain `exec` in this process, for tests of code that uses runtimes."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cenote.runtime.core.arguments import Scope
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote_security.errors import NameExistsError
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, Span, StreamName, VariableInfo


@dataclass(frozen=True)
class Violation:
    message: str


class InProcessRuntime:
    """Has the `port` of the real ones, and implements it. `forbidden` are substrings that its rules refuse."""

    author = ""
    scope: Scope = "shared"

    def __init__(self, *items: Injectable, forbidden: Sequence[str] = ()) -> None:
        self.namespace: dict[str, object] = {}
        self.items: list[Injectable] = []
        self.executed: list[str] = []
        self.causes: list[str] = []
        self.timeouts: list[float | None] = []
        self.cancelled = 0
        self.started = asyncio.Event()
        self._forbidden = forbidden
        self._replies: list[str] = []
        self._put(items)

    @property
    def port(self) -> InProcessRuntime:
        return self

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(item for item in self.items if isinstance(item, Variable))

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(item for item in self.items if isinstance(item, Type))

    async def inject(self, *items: Injectable) -> None:
        self._put(items)

    def _put(self, items: Sequence[Injectable]) -> None:
        for item in items:
            if item.name in self.namespace:
                raise NameExistsError(item.name)
        for item in items:
            self.items.append(item)
            self.namespace[item.name] = item.func if isinstance(item, Function) else item.value

    async def describe(self) -> list[VariableInfo]:
        return [
            VariableInfo(name=name, type=type(value).__name__, size=len(repr(value)))
            for name, value in self.namespace.items()
            if not name.startswith("_") and not callable(value) and not inspect.ismodule(value)
        ]

    def check(self, code: str) -> list[Violation]:
        return [Violation(f"{text!r} is blocked") for text in self._forbidden if text in code]

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None,
        on_output: Callable[[StreamName, str], None] | None,
        cause: str = "",
    ) -> ExecutionResult:
        self.executed.append(code)
        self.causes.append(cause)
        self.started.set()
        self.timeouts.append(timeout)
        self._replies.clear()
        out = io.StringIO()
        step = len(self.executed)
        try:
            with contextlib.redirect_stdout(out):
                value = await self._run(code)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        except Exception as error:
            return ExecutionResult(success=False, stdout=out.getvalue(), error=_info(error), step=step)
        reply = self._replies[-1] if self._replies else None
        shown = None if value is None else repr(value)
        return ExecutionResult(success=True, stdout=out.getvalue(), value=shown, step=step, reply=reply)

    async def _run(self, code: str) -> object:
        tree = ast.parse(code)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        self.namespace["__builtins__"] = __builtins__
        helpers = {"reply": lambda text: self._replies.append(str(text)), "show": print}
        for name, helper in helpers.items():
            self.namespace.setdefault(name, helper)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        value = None
        for part, mode in ((tree, "exec"), (last, "eval")):
            if part is not None:
                value = eval(compile(part, "<cell>", mode, flags=flags), self.namespace)
                if inspect.isawaitable(value):
                    value = await value
        return value


def _info(error: Exception) -> ErrorInfo:
    if isinstance(error, SyntaxError):
        return ErrorInfo(type=type(error).__name__, message=error.msg)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<cell>"
    ]
    span = Span(line=lines[-1], column=0, end_line=lines[-1], end_column=1) if lines and lines[-1] else None
    return ErrorInfo(type=type(error).__name__, message=str(error), span=span)
