"""IPythonRuntime and IPyKernelRuntime: jailed runtimes with the methods of the CaveAgent library's."""

from __future__ import annotations

import asyncio
import builtins
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

from cenote.runtime.core.listeners import OnOutput
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.faces.face import RuntimePort
from cenote.runtime.faces.listing import functions_text, types_text, variables_text
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable, check_name
from cenote_security.errors import (
    CenoteError,
    NameExistsError,
    NotTransferableError,
    UnknownNameError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy, check_seconds
from cenote_security.rules import SecurityChecker, SecurityError
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, OnError, StreamName, VariableInfo

_T = TypeVar("_T")

STOP_GRACE = 5.0
"""Seconds that a runtime which is stopped gives its cells."""


class RuntimeExecutionError(CenoteError):
    """The runtime failed, not the code that it was to run: no jail could be started, or it gave no answer."""


class RuntimeStateLostError(asyncio.CancelledError):
    """A cancelled cell has cost the namespace. Never raised here: the copy from before the cell takes over."""


class ErrorFeedbackMode(Enum):
    """How a failure reads in the output: with its traceback, or in one line."""

    PLAIN = "Plain"
    MINIMAL = "Minimal"


class CellError(Exception):
    """What code raised, where its class is none of Python's own. type: the name of that class."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}" if message else type)
        self.type = type


@dataclass(frozen=True)
class TextResult:
    """What a cell gave, in one text, as a notebook would show it: printed, displayed, and the traceback.

    error: why it failed: an exception of Python's own class by that name, SecurityError for code that the rules
        refuse, CellError for others. state_lost: whether the namespace is gone. result: all that the runtime says.
    """

    error: BaseException | None = None
    stdout: str | None = None
    _: KW_ONLY
    state_lost: bool = False
    result: ExecutionResult | None = field(default=None, repr=False)

    @property
    def success(self) -> bool:
        return self.error is None


class IPythonRuntime:
    """A jailed runtime with the methods of the CaveAgent library's: its `Runtime` protocol, whole.

    Registering waits for nothing: what is registered is sent before the next cell, as it is then. Functions and
    values go by value; `Function(f, host=True)` and `Variable(name, x, host=True)` stay in the client.

    functions, variables, types, security_checker, sandbox: as for PythonRuntime.
    error_feedback_mode: how failures read in the output.

    Raises UsageError (a ValueError) for a name that exists.
    """

    def __init__(
        self,
        functions: Iterable[Function] | None = None,
        variables: Iterable[Variable] | None = None,
        types: Iterable[Type] | None = None,
        security_checker: SecurityChecker | None = None,
        error_feedback_mode: ErrorFeedbackMode = ErrorFeedbackMode.PLAIN,
        *,
        sandbox: SandboxPolicy | None = None,
    ) -> None:
        self._checker = security_checker
        self._sandbox = sandbox
        self._mode = ErrorFeedbackMode(error_feedback_mode)
        self._registered: dict[str, Injectable] = {}
        self._hidden: set[str] = set()  # registered, and not described to a model
        self._unsent: list[tuple[Injectable, ...]] = []
        self._updates: dict[str, Any] = {}
        self._declared: dict[str, type] = {}  # of variables that were updated, as it was before
        self._inner: AsyncPythonRuntime | None = None
        self._registering = Lock()
        self._sending = asyncio.Lock()
        self._running: set[asyncio.Future[None]] = set()
        self.inject_resources(functions=functions, variables=variables, types=types)

    _nothing: str | None = ""  # of a cell that shows nothing

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {', '.join(self._registered) or 'nothing'} registered>"

    # -- registering --

    def inject_function(self, function: Function) -> None:
        self.inject_resources(functions=[function])

    def inject_variable(self, variable: Variable) -> None:
        self.inject_resources(variables=[variable])

    def inject_type(self, type_obj: Type) -> None:
        self.inject_resources(types=[type_obj])

    def inject_resources(
        self,
        *,
        functions: Iterable[Function] | None = None,
        variables: Iterable[Variable] | None = None,
        types: Iterable[Type] | None = None,
        bindings: Iterable[tuple[str, Any]] | None = None,
    ) -> None:
        """Registers all or none. bindings: names and values that no model is told of."""
        described = [_own(item) for group in (types, functions, variables) for item in group or ()]
        hidden = [binding(name, value) for name, value in bindings or ()]
        self._register([*described, *hidden])
        self._hidden.update(item.name for item in hidden)

    def inject_into_namespace(self, name: str, value: Any, *, replace: bool = True) -> None:
        """Binds a name that no model is told of. replace: whether it may be bound so already."""
        name = _spelled(name)
        if replace and name in self._hidden:
            self._registered[name] = binding(name, value)
            self._updates[name] = value
            return
        self.inject_resources(bindings=[(name, value)])

    def update_variable(self, name: str, value: Any) -> None:
        """Gives a registered variable another value, of the same type; any, where it has had None so far.

        Raises KeyError for a name that is not registered, TypeError for another type.
        """
        name = _spelled(name)
        former = self._registered.get(name)
        if not isinstance(former, Variable) or name in self._hidden:
            raise KeyError(f"Variable '{name}' does not exist; registered are {self._names(Variable)}")
        if former.value is not None:
            self._declared.setdefault(name, type(former.value))
        if value is not None and not isinstance(value, self._declared.get(name, object)):
            wanted = self._declared[name].__name__
            given = type(value).__name__
            raise TypeError(f"Cannot update variable '{name}': type mismatch. Expected {wanted}, got {given}")
        self._registered[name] = Variable(name, value, former.description, host=former.host)
        self._updates[name] = value

    def _register(self, items: Sequence[Injectable]) -> None:
        names = [item.name for item in items]
        with self._registering:
            for index, (item, name) in enumerate(zip(items, names, strict=True)):
                if name in self._registered or name in names[:index]:
                    raise UsageError(f"{type(item).__name__} '{name}' already exists in this runtime")
            self._registered |= dict(zip(names, items, strict=True))
            if items:
                self._unsent.append(tuple(items))

    def _names(self, kind: type[Injectable]) -> list[str]:
        return [
            i.name for i in self._registered.values() if isinstance(i, kind) and i.name not in self._hidden
        ]

    # -- describing --

    def describe_functions(self) -> str:
        return functions_text(self.registered(Function))

    def describe_variables(self) -> str:
        return variables_text(self.registered(Variable), self._declared)

    def describe_types(self) -> str:
        return types_text(self.registered(Type))

    def registered(self, kind: type[_T]) -> list[_T]:
        """What is registered and described, of one kind."""
        return [
            item
            for name, item in self._registered.items()
            if isinstance(item, kind) and name not in self._hidden
        ]

    def has(self, item: Injectable) -> bool:
        """Whether this very item is registered, described or not."""
        return self._registered.get(item.name) is item

    # -- running --

    async def execute(self, code: str) -> TextResult:
        """Runs code. What it raises is in the result; cancelling this ends it.

        Raises RuntimeExecutionError when the runtime itself fails.
        """
        with _runtime_failures():
            return self.text_of(await self._run(code))

    async def _run(self, code: str, on_output: OnOutput | None = None) -> ExecutionResult:
        running = asyncio.get_running_loop().create_future()
        self._running.add(running)
        try:
            return await (await self._ready()).execute(code, on_output=on_output)
        finally:
            self._running.discard(running)
            running.cancel()

    def text_of(self, result: ExecutionResult) -> TextResult:
        """A result as this runtime tells of it."""
        return TextResult(
            error=None if result.error is None else _exception(result.error),
            stdout=notebook_text(result, self._mode) or self._nothing,
            state_lost=result.state == "lost",
            result=result,
        )

    async def retrieve(self, name: str) -> Any:
        """A copy of a registered variable, as it is now. Raises KeyError for a name that is not registered."""
        name = _spelled(name)
        if name not in self._names(Variable):
            raise KeyError(
                f"Variable '{name}' is not managed by this runtime; managed are {self._names(Variable)}"
            )
        return await self.get_from_namespace(name)

    async def get_from_namespace(self, name: str) -> Any:
        """A copy of whatever has this name; of a function or class that is registered, the very object.

        Raises KeyError where nothing has it, UnsafeValueError for what comes out of no jail.
        """
        name = _spelled(name)
        item = self._registered.get(name)
        if isinstance(item, Function | Type):
            return (
                item.func if isinstance(item, Function) else item.value
            )  # the client's own; none comes back
        try:
            return await (await self._ready()).retrieve(name)
        except UnknownNameError:
            raise KeyError(f"'{name}' is not bound in the namespace") from None

    async def bind_unique(self, prefix: str, value: Any, *, start: int = 1) -> str:
        """Binds a value to the first of `prefix_1`, `prefix_2`, ... that is free, and gives that name.

        start: the first number. A name that code has bound is not free.
        """
        if not isinstance(start, int) or start < 1:
            raise UsageError(f"start must be a positive integer, not {start!r:.100}")
        prefix = _spelled(prefix)
        with _runtime_failures():
            runtime = await self._ready()
            while True:
                name = f"{prefix}_{start}"
                start += 1
                if name in self._registered:
                    continue
                item = binding(name, value)
                try:
                    await runtime.inject(item)
                except NameExistsError:
                    continue
                except NotTransferableError as error:
                    raise RuntimeExecutionError(str(error)) from error
                self._registered[name] = item
                self._hidden.add(name)
                return name

    async def reset(self) -> None:
        """Forgets everything but what is registered, when the cells that run have ended."""
        await self._cells_ended()
        await self._end()

    async def interrupt(self) -> None:
        """Ends the cell that runs, if one does."""
        if self._inner is not None:
            await self._inner.interrupt()

    # -- life --

    async def start(self) -> Self:
        """Starts the jail now; otherwise the first cell does."""
        with _runtime_failures():
            await (await self._ready()).status()
        return self

    async def stop(self) -> None:
        """Ends the jail. What is registered is sent to the next one, which the next call starts.

        Cells that run are given STOP_GRACE to end by themselves.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE):
                await self._cells_ended()
        await self._end()

    async def _cells_ended(self) -> None:
        here = asyncio.get_running_loop()
        while running := [cell for cell in self._running if cell.get_loop() is here]:
            await asyncio.wait(running)

    async def _end(self) -> None:
        inner, self._inner = self._inner, None
        self._updates.clear()
        self._unsent = [tuple(self._registered.values())] if self._registered else []
        if inner is not None:
            await inner.close()

    async def close(self) -> None:
        await self.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.stop() if error is None else self._end())

    @property
    def port(self) -> RuntimePort:
        """What Cenote's agents see of this runtime."""
        return _Port(self)

    @property
    def core(self) -> RuntimeCore:
        return self._runtime.core

    @property
    def _runtime(self) -> AsyncPythonRuntime:
        if self._inner is None:
            self._inner = AsyncPythonRuntime(security_checker=self._checker, sandbox=self._sandbox)
        return self._inner

    async def _ready(self) -> AsyncPythonRuntime:
        """The runtime, with all that is registered."""
        async with self._sending:  # of two calls, neither runs before what the other one sends
            runtime = self._runtime
            while self._unsent:
                items = self._unsent[0]
                try:
                    await runtime.inject(*items)
                except UsageError:
                    for item in items:  # they cannot be sent, now or later
                        self._registered.pop(item.name, None)
                    self._unsent.remove(items)
                    raise
                self._unsent.remove(items)
            while self._updates:
                name = next(iter(self._updates))
                await runtime.update_variable(name, self._updates.pop(name))
            return runtime


class IPyKernelRuntime(IPythonRuntime):
    """The same: here both have a process, and a jail, of their own.

    iopub_timeout: seconds in which a cell must print something; one that does not is ended, as a failure. None: as
        long as the sandbox's `cell_timeout` lets it.
    """

    _nothing = None

    def __init__(
        self,
        functions: Iterable[Function] | None = None,
        variables: Iterable[Variable] | None = None,
        types: Iterable[Type] | None = None,
        security_checker: SecurityChecker | None = None,
        error_feedback_mode: ErrorFeedbackMode = ErrorFeedbackMode.PLAIN,
        iopub_timeout: float | None = None,
        *,
        sandbox: SandboxPolicy | None = None,
    ) -> None:
        check_seconds(iopub_timeout, "iopub_timeout")
        super().__init__(functions, variables, types, security_checker, error_feedback_mode, sandbox=sandbox)
        self._silence = iopub_timeout

    async def _run(self, code: str, on_output: OnOutput | None = None) -> ExecutionResult:
        if self._silence is None:
            return await super()._run(code, on_output)
        silence = self._silence
        clock = asyncio.get_running_loop().time
        printed: list[str] = []
        await self._ready()
        try:
            async with asyncio.timeout(silence) as limit:

                def heard(stream: StreamName, text: str) -> None:
                    limit.reschedule(clock() + silence)
                    printed.append(text)
                    if on_output is not None:
                        on_output(stream, text)

                return await super()._run(code, heard)
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the cell printed nothing for {silence:g} s (iopub_timeout), and was ended"
            error = ErrorInfo(type="TimeoutError", message=message, reason="time")
            return ExecutionResult(success=False, stdout="".join(printed), error=error)


class _Port(RuntimePort):
    """What is registered is there before an agent's first look."""

    def __init__(self, runtime: IPythonRuntime) -> None:
        super().__init__(runtime.core)
        self._whole = runtime

    @property
    def functions(self) -> tuple[Function, ...]:
        return self._with(Function, super().functions)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self._with(Variable, super().variables)

    @property
    def types(self) -> tuple[Type, ...]:
        return self._with(Type, super().types)

    def _with(self, kind: type[_T], sent: Sequence[_T]) -> tuple[_T, ...]:
        whole, hidden = self._whole.registered(kind), self._whole._hidden
        names = {getattr(item, "name", "") for item in whole} | hidden
        return (*whole, *(item for item in sent if getattr(item, "name", "") not in names))

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None,
        on_output: OnOutput | None,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> ExecutionResult:
        await self._whole._ready()
        if getattr(self._whole.execute, "__func__", None) is not IPythonRuntime.execute:
            return await self._of_subclass(code, timeout)
        return await super().execute(
            code, timeout=timeout, on_output=on_output, cause=cause, on_error=on_error
        )

    async def _of_subclass(self, code: str, timeout: float | None) -> ExecutionResult:
        """What a user's own `execute` gives. One that takes too long is cancelled."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout) as limit:
                given: Any = await self._whole.execute(code)
        except TimeoutError:
            if not limit.expired():
                raise
            late = ErrorInfo(
                type="TimeoutError", message=f"the cell took longer than {timeout:g} s", reason="time"
            )
            return ExecutionResult(success=False, error=late, duration=time.monotonic() - started)
        if isinstance(given, TextResult) and given.result is not None:
            return given.result
        error, text = given.error, given.stdout or ""
        if error is None:
            return ExecutionResult(success=True, stdout=text, duration=time.monotonic() - started)
        refused = isinstance(error, SecurityError)
        info = ErrorInfo(
            type=type(error).__name__, message=str(error), reason="policy" if refused else "exception"
        )
        return ExecutionResult(success=False, stdout=text, error=info, duration=time.monotonic() - started)

    async def inject(self, *items: Injectable) -> None:
        await self._whole._ready()
        await super().inject(*items)

    async def describe(self) -> list[VariableInfo]:
        await self._whole._ready()
        return [info for info in await super().describe() if info.name not in self._whole._hidden]


@contextmanager
def _runtime_failures() -> Iterator[None]:
    """What keeps a runtime from working, apart from what its caller did wrong."""
    try:
        yield
    except (UsageError, RuntimeExecutionError):
        raise
    except CenoteError as error:
        raise RuntimeExecutionError(f"{type(error).__name__}: {error}") from error


def binding(name: str, value: Any) -> Injectable:
    """A value under a name, as the kind of thing that it is."""
    name = _spelled(name)
    if isinstance(value, Function | Variable | Type) and value.name == name:
        return value
    if callable(value) and getattr(value, "__name__", None) == name and not isinstance(value, type):
        return Function(value)
    return Type(value) if isinstance(value, type) and value.__name__ == name else Variable(name, value)


def _own(item: Any) -> Injectable:
    """One of Cenote's own descriptions, also of one that the CaveAgent library's classes describe."""
    if isinstance(item, Variable | Function | Type):
        return item
    description = getattr(item, "description", None)
    if hasattr(item, "func"):
        is_shown = getattr(item, "doc", None) is not None
        return Function(item.func, description, is_shown, name=_spelled(item.name))
    if hasattr(item, "include_schema"):
        return Type(item.value, description, item.include_schema, item.include_doc)
    if hasattr(item, "value"):
        return Variable(_spelled(item.name), item.value, description)
    raise UsageError(f"a runtime takes Function, Variable and Type objects, not {type(item).__name__}")


def _spelled(name: str) -> str:
    """A name as Python reads it."""
    if isinstance(name, str):
        name = unicodedata.normalize("NFKC", name)
    check_name(name, "variable")
    return name


def notebook_text(result: ExecutionResult, mode: ErrorFeedbackMode = ErrorFeedbackMode.PLAIN) -> str:
    """What a notebook would show of a cell."""
    text = "".join(piece for _, piece in result.printed)
    shown = [str(bundle["text/plain"]) for bundle in result.outputs if "text/plain" in bundle]
    if result.value is not None and result.value not in shown:
        shown.append(result.value)
    for part in shown:
        text += part if part.endswith("\n") else f"{part}\n"
    if result.error is not None:
        error = result.error
        text += f"{error.type}: {error.message}" if mode is ErrorFeedbackMode.MINIMAL else str(error)
    return text


def _exception(error: ErrorInfo) -> BaseException:
    """An exception for what a cell reported. It is made here, of a class of Python's own: nothing of it is the jail's
    but the text."""
    if error.reason == "policy":
        return SecurityError(f"violations of the rules: {error.message}")
    kind = getattr(builtins, error.type, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(error.message)
        except TypeError:  # some want more than a text
            pass
    if error.type == "KeyboardInterrupt":
        return KeyboardInterrupt(error.message)
    return CellError(error.type, error.message)
