"""Where the runtimes of a team come from. Nothing else in this room knows whether they are near or far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cenote.agent import AgentRuntime
from cenote.agent.port import Violation
from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote.runtime.authors import Scope
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.listeners import OnOutput
from cenote_security.policy import SandboxPolicy
from cenote_worker.results import ExecutionResult, VariableInfo

RuntimeFactory = Callable[[str, SandboxPolicy], AsyncPythonRuntime | PythonRuntime]
"""Makes the runtime of an agent, by the agent's name and its sandbox. The team closes what was made for it."""


def embedded(name: str, sandbox: SandboxPolicy) -> AsyncPythonRuntime:
    """A runtime on this machine."""
    return AsyncPythonRuntime(name=name, sandbox=sandbox)


class OwnedRuntime:
    """A runtime that was made for an agent: the awaiting face of it, and its end.

    Cells that the agent runs come back with what `notices` gives, as their news; `port` may put something before what
    the agent sees. The object that the factory gave
    stays in hand, since a runtime that nobody holds any more is closed.
    """

    def __init__(
        self,
        made: AsyncPythonRuntime | PythonRuntime,
        notices: Callable[[], tuple[str, ...]],
        port: Callable[[AgentRuntime], AgentRuntime] | None = None,
    ) -> None:
        self._made = made
        self._notices = notices
        self._before = port
        self.face = made if isinstance(made, AsyncPythonRuntime) else AsyncPythonRuntime.over(made.core)

    @property
    def port(self) -> AgentRuntime:
        """What the agent sees of it."""
        noticing = NoticingPort(self.face.port, self._notices)
        return noticing if self._before is None else self._before(noticing)

    async def close(self) -> None:
        await self.face.close()


class NoticingPort:
    """The port of a runtime whose cells come back with news for their agent."""

    def __init__(self, port: AgentRuntime, notices: Callable[[], tuple[str, ...]]) -> None:
        self._port = port
        self._notices = notices

    @property
    def author(self) -> str:
        return self._port.author

    @property
    def scope(self) -> Scope:
        return self._port.scope

    @property
    def functions(self) -> Sequence[Function]:
        return self._port.functions

    @property
    def variables(self) -> Sequence[Variable]:
        return self._port.variables

    @property
    def types(self) -> Sequence[Type]:
        return self._port.types

    async def execute(
        self, code: str, *, timeout: float | None, on_output: OnOutput | None, cause: str = ""
    ) -> ExecutionResult:
        result = await self._port.execute(code, timeout=timeout, on_output=on_output, cause=cause)
        return replace(result, news=(*result.news, *self._notices()))

    async def inject(self, *items: Injectable) -> None:
        await self._port.inject(*items)

    async def describe(self) -> Sequence[VariableInfo]:
        return await self._port.describe()

    def check(self, code: str) -> Sequence[Violation]:
        return self._port.check(code)
