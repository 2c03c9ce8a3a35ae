"""A runtime as the namespace of a framework's agent: tools, values, an answer that ends the run, results as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, Final

from cenote.agent.prompt.observation import aftermath, observe
from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote.runtime.inject.injectables import check_name
from cenote_security.errors import CenoteError, UnknownNameError, UnsafeValueError, UsageError
from cenote_worker.execution.results import ExecutionResult

MOST_CHARACTERS: Final = 8_000
"""Of one text for a model. More costs it more than a further cell that prints a part."""

AnyRuntime = PythonRuntime | AsyncPythonRuntime

_KEY: Final = re.compile("answer [0-9]{1,9}")

_EXIT_NOTE: Final = "[exit() ends the cell; the runtime goes on]\n"


def _ends_task(*args: Any, **kwargs: Any) -> None:
    """Ends the task with this answer."""
    # Runs in the jail only. The answer stays there until it is retrieved, so a value that cannot leave costs nothing
    # else. Its key is the cell's reply, so that two agents in one namespace do not get each other's answers.
    key = f"answer {len(given) + 1}"  # type: ignore[name-defined]  # noqa: F821
    given[key] = [list(args), kwargs]  # type: ignore[name-defined]  # noqa: F821
    reply(key)  # type: ignore[name-defined]  # noqa: F821
    exit()


@dataclass(frozen=True, slots=True)
class Ended:
    """The arguments that the code gave to the function that ends the run."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class AgentNamespace:
    """Gives an agent's tools to a runtime as host functions and runs its code there.

    runtime: one of the caller's, which it closes; without one, a new one with `options` of PythonRuntime, which
    `close` ends. ending: name of the function that ends a run with an answer; none by default. timeout: seconds for
    one cell.

    Raises UsageError for options beside a runtime.
    """

    def __init__(
        self,
        runtime: AnyRuntime | None = None,
        *,
        ending: str = "",
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        self.runtime, self._own = blocking(runtime, options)
        self._timeout = timeout
        self._ending = ending
        self._answers = f"_{ending}_given"
        self._offered: set[str] = set()
        self._changed = False

    def offer(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """These tools replace those of an earlier call. They run in this process, when code calls them.

        Tools of one name in one namespace are those that were offered last. Raises UsageError for a name that is no
        identifier, before anything changes.
        """
        functions = [Function(tool, name=name, host=True) for name, tool in tools.items()]
        self.withdraw()
        for function in functions:
            self._remove(function.name)
            self.runtime.inject(function)
            self._offered.add(function.name)

    def withdraw(self) -> None:
        """Removes all that was offered."""
        while self._offered:
            self._remove(self._offered.pop())

    def _remove(self, name: str) -> None:
        with suppress(UnknownNameError):
            # Code may have deleted it, while this process still holds the name; so it is there for certain.
            self.runtime.update_variable(name, None)
            self.runtime.delete(name)

    def define(self, function: Callable[..., Any], name: str, **names: Any) -> None:
        """A function that runs in the jail, with these names as its globals; it imports what else it needs."""
        self._remove(name)
        self.runtime.inject(Function(_by_value(function, name, **names)))

    def put(self, values: Mapping[str, Any]) -> None:
        """Values under names that may be there or not. Raises NotTransferableError for one that cannot be copied."""
        for name in values:
            check_name(name, "variable")
        for name, value in values.items():
            try:
                self.runtime.update_variable(name, value)
            except UnknownNameError:
                self.runtime.inject(Variable(name, value))

    def run(self, code: str) -> ExecutionResult:
        """Runs one cell. If the code mentions the function that ends a run, that function is there."""
        if self._ending and self._ending in code:
            self._define_ending()
        return self.runtime.execute(code, self._timeout)

    def ended(self, result: ExecutionResult) -> Ended | None:
        """The answer that this cell has ended the run with.

        Raises UsageError, in words for a model, for an answer that cannot leave the jail.
        """
        key = result.reply or ""
        if not self._ending or not _KEY.fullmatch(key):
            return None
        try:
            answer = _answer(self.runtime.retrieve(self._answers), key)
        except UnknownNameError:
            answer = None
        except UnsafeValueError as error:
            raise UsageError(
                f"{self._ending}() takes plain data, arrays and frames, and got a value of class "
                f"{error.class_name}: give it what you need of that value"
            ) from None
        finally:
            self.runtime.execute(f"{self._answers}.pop({key!r}, None)", cause="the adapter has the answer")
        if answer is None:  # code has changed what the function fills
            self._changed = True
            raise UsageError(
                f"the answer is lost: the code has changed {self._answers}; call {self._ending}() again"
            )
        return answer

    def _define_ending(self) -> None:
        """A rollback, or code, may have removed it. It is injected, so that no rule for code is asked."""
        there = any((info.name, info.type) == (self._ending, "function") for info in self.runtime.describe())
        if there and not self._changed:
            return
        self._changed = False
        given: dict[str, list[Any]] = {}
        ending = _by_value(_ends_task, self._ending, given=given)
        for name in (self._answers, self._ending):
            self._remove(name)
        # In one piece: the function fills the very dictionary that the variable has.
        self.runtime.inject(Variable(self._answers, given), Function(ending))

    def close(self) -> None:
        """Ends the runtime if it was made here; removes the tools from one of the caller's."""
        if self._own:
            self.runtime.close()
            return
        with suppress(CenoteError):  # it may be closed, or gone with its platform
            self.withdraw()


class PythonTool:
    """The tool `python` of an agent: cells of one runtime, and what a model reads of each.

    runtime: of the caller, who closes it; without one, a new one with `options` of PythonRuntime, which `close` ends.
    timeout: seconds for one call.
    """

    description: Final = (
        "Runs Python in a sandbox. Variables, imports and files stay for later calls. The value of the last "
        "expression is shown; keep data in variables, print little."
    )

    def __init__(
        self, runtime: AnyRuntime | None = None, *, timeout: float | None = None, **options: Any
    ) -> None:
        self.runtime, self._own = awaiting(runtime, options)
        self._timeout = timeout

    async def run(self, code: str) -> str:
        """Output, value, the error if it fails, and what became of the state. Cancelling it ends the cell."""
        return told(await self.runtime.execute(code, self._timeout), code)

    async def close(self) -> None:
        if self._own:
            await self.runtime.close()


def _by_value(function: Callable[..., Any], name: str, **names: Any) -> FunctionType:
    """Of `__main__`, so that it goes into the jail by value."""
    code = function.__code__.replace(co_name=name, co_qualname=name, co_filename="<adapter>")
    made = FunctionType(code, {"__name__": "__main__", **names}, name)
    made.__doc__ = function.__doc__
    return made


def _answer(given: object, key: str) -> Ended | None:
    """None for what code has put there in place of the function."""
    match given.get(key) if isinstance(given, dict) else None:
        case [list() as args, dict() as kwargs] if all(isinstance(name, str) for name in kwargs):
            return Ended(tuple(args), kwargs)
        case _:
            return None


def blocking(runtime: AnyRuntime | None, options: Mapping[str, Any]) -> tuple[PythonRuntime, bool]:
    """A runtime whose calls wait, and whether it is a new one. Raises UsageError for options beside a runtime."""
    if runtime is None:
        return PythonRuntime(**options), True
    _check_options(options)
    return runtime if isinstance(runtime, PythonRuntime) else PythonRuntime.over(runtime.core), False


def awaiting(runtime: AnyRuntime | None, options: Mapping[str, Any]) -> tuple[AsyncPythonRuntime, bool]:
    """The same with coroutines."""
    if runtime is None:
        return AsyncPythonRuntime(**options), True
    _check_options(options)
    return runtime if isinstance(runtime, AsyncPythonRuntime) else AsyncPythonRuntime.over(
        runtime.core
    ), False


def _check_options(options: Mapping[str, Any]) -> None:
    if options:
        raise UsageError(
            f"the runtime is there already: {', '.join(options)} can only be given for a new one"
        )


def printed(result: ExecutionResult, code: str) -> str:
    """What a cell printed, displayed and gave, as a model reads it."""
    if result.stderr.endswith(_EXIT_NOTE):
        result = replace(result, stderr=result.stderr.removesuffix(_EXIT_NOTE), printed_in_turns=())
    return shortened(observe(result, code).output)


def failure(result: ExecutionResult, code: str) -> str:
    """Why a cell failed and what became of its state, as a model reads it; empty for one that succeeded."""
    if result.success:
        return ""
    return "\n".join([observe(result, code).error, *aftermath(result)])


def told(result: ExecutionResult, code: str) -> str:
    """All of a cell in one text."""
    error = observe(result, code).error
    parts = [printed(result, code), f"Error: {error}" if error else "", *aftermath(result)]
    return "\n".join(part for part in parts if part) or "(no output)"


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Beginning and end of a long text."""
    if len(text) <= most:
        return text
    head, tail = most * 3 // 5, most * 2 // 5
    gap = f"[... {len(text) - head - tail:,} characters left out: print less, or a part of it]"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"
