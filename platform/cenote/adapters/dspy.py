"""DSPy: a runtime as the code interpreter of `RLM`, `CodeAct` and `ProgramOfThought`.

from cenote.adapters.dspy import CenoteInterpreter, InterpreterFactory
dspy.configure(interpreter_factory=CenoteInterpreter)            # a runtime for each call
dspy.RLM(..., interpreter_factory=InterpreterFactory(runtime))         # one runtime for all
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from cenote.adapters.agent_namespace import AgentNamespace, AnyRuntime, Ended, failure, printed
from cenote.runtime.inject.host_turns import background_loop
from cenote_security.errors import CenoteError, NotTransferableError, UsageError
from cenote_security.extras import importing

with importing("the adapter for DSPy", "dspy"):
    from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput

_ENDING: Final = "SUBMIT"


class CenoteInterpreter:
    """DSPy's CodeInterpreter over a runtime. Code has numpy, pandas and all else that is installed.

    Variables of a task may be any values that can be copied, frames among them. One is sent when it is another object
    than before: what code does to it stays for the next turn. Tools run in this process, with DSPy's settings of the
    caller.

    tools: by name. output_fields: of SUBMIT, each a dictionary with its `name`. runtime: of the caller, who closes
    it; without one, a new one with `options` of PythonRuntime, which `shutdown` ends. timeout: seconds for one turn.
    """

    execution_instructions = (
        "Code runs as Python in a sandbox whose variables, imports and files stay from one execution to the next. "
        "Tools and SUBMIT are global functions. The value of the last expression is shown. An error leaves the "
        "variables that were set before it."
    )

    def __init__(
        self,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        *,
        runtime: AnyRuntime | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self._namespace = AgentNamespace(runtime, ending=_ENDING, timeout=timeout, **options)
        self._offered: dict[str, Callable[..., Any]] | None = None
        self._sent: dict[str, Any] = {}
        self._context = contextvars.copy_context()
        self._running = threading.Lock()
        self._ended = ""

    @property
    def runtime(self) -> Any:
        return self._namespace.runtime

    def start(self) -> None:
        """Starts the jail now; otherwise the first `execute` does."""
        with self._infrastructure():
            self.runtime.status()

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """What the code printed and its value, as text; FinalOutput if it called SUBMIT; None for no output.

        Raises SyntaxError and CodeExecutionError for code that fails, which DSPy gives to its model;
        CodeInterpreterError where the runtime fails, or its state is lost.
        """
        if not isinstance(code, str):
            raise CodeInterpreterError(f"code is a text, not {type(code).__name__}")
        if not self._running.acquire(blocking=False):
            raise CodeInterpreterError("another execution of this interpreter has not ended yet")
        try:
            with self._infrastructure():
                self._context = contextvars.copy_context()
                self._offer()
                self._put(variables or {})
                return self._execute(code)
        finally:
            self._running.release()

    def _execute(self, code: str) -> Any:
        result = self._namespace.run(code)
        if result.state == "lost":
            self._ended = f"the state is lost: {result.error}"
            raise CodeInterpreterError(self._ended)
        output = printed(result, code)
        if result.error is not None:
            text = failure(result, code)
            if result.error.type == "SyntaxError":
                raise SyntaxError(text.removeprefix("SyntaxError: "))
            raise CodeExecutionError(f"{output}\n{text}" if output else text)
        try:
            ended = self._namespace.ended(result)
        except UsageError as error:
            raise CodeExecutionError(str(error)) from None
        return (output or None) if ended is None else FinalOutput(self._fields(ended))

    def _fields(self, ended: Ended) -> dict[str, Any]:
        names = ["output"] if self.output_fields is None else [field["name"] for field in self.output_fields]
        given = {**dict(zip(names, ended.args, strict=False)), **ended.kwargs}
        if len(ended.args) + len(ended.kwargs) != len(names) or set(given) != set(names):
            raise CodeExecutionError(f"{_ENDING} takes these values: {_ENDING}({', '.join(names)})")
        return given

    def _offer(self) -> None:
        """DSPy fills `tools` between executions."""
        if self._offered == self.tools:
            return
        if _ENDING in self.tools:
            raise CodeInterpreterError(f"no tool can have the name {_ENDING}")
        self._namespace.offer({name: self._here(tool) for name, tool in self.tools.items()})
        self._offered = dict(self.tools)

    def _here(self, tool: Callable[..., Any]) -> Callable[..., Any]:
        """The tool with the settings of the execution that calls it: a host function runs on another thread. Code
        calls an asynchronous one like any other."""

        def here(*args: Any, **kwargs: Any) -> Any:
            given = tool(**_named(tool, args), **kwargs) if args else tool(**kwargs)
            if not inspect.isawaitable(given):
                return given
            return asyncio.run_coroutine_threadsafe(_awaited(given), background_loop()).result()

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._context.copy().run(here, *args, **kwargs)

        return functools.wraps(tool)(call)

    def _put(self, variables: Mapping[str, Any]) -> None:
        if not variables:
            return
        for name in variables:
            if name in self.tools or name == _ENDING:
                raise CodeInterpreterError(f"{name} is a function here; give the variable another name")
        there = {info.name for info in self.runtime.describe()}
        new = {
            name: value
            for name, value in variables.items()
            if name not in there or self._sent.get(name, self) is not value
        }
        self._namespace.put(new)
        self._sent |= new

    @contextmanager
    def _infrastructure(self) -> Iterator[None]:
        """Raises CodeInterpreterError for what no code of a model can repair."""
        if self._ended:
            raise CodeInterpreterError(self._ended)
        try:
            yield
        except NotTransferableError as error:
            raise CodeInterpreterError(f"a variable cannot go into the runtime: {error}") from error
        except CenoteError as error:
            raise CodeInterpreterError(str(error)) from error

    def shutdown(self) -> None:
        """Ends the runtime if it was made here; removes the tools from one of the caller's."""
        self._ended = self._ended or "the interpreter was shut down"
        self._namespace.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _named(tool: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments by their names: DSPy calls its tools with nothing else."""
    names = list(inspect.signature(tool).parameters)
    if len(args) > len(names):
        raise TypeError(f"takes {len(names)} arguments ({', '.join(names)}), not {len(args)}")
    return dict(zip(names, args, strict=False))


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


class InterpreterFactory:
    """A factory of interpreters over one runtime, so that all calls of a program share its namespace."""

    execution_instructions = CenoteInterpreter.execution_instructions

    def __init__(self, runtime: AnyRuntime, *, timeout: float | None = None) -> None:
        self._runtime = runtime
        self._timeout = timeout

    def __call__(self) -> CenoteInterpreter:
        return CenoteInterpreter(runtime=self._runtime, timeout=self._timeout)
