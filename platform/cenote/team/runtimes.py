"""Where the runtimes of a team come from. No other module of this package knows whether they are local or remote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cenote.agent import AgentRuntime
from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote.runtime.core.listeners import OnOutput
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.faces.face import RuntimePort
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ExecutionResult, OnError

RuntimeFactory = Callable[[str, SandboxPolicy], AsyncPythonRuntime | PythonRuntime]
"""Makes the runtime of an agent, by the agent's name and its sandbox. The team closes what was made for it."""


def embedded(name: str, sandbox: SandboxPolicy) -> AsyncPythonRuntime:
    """A runtime on this machine."""
    return AsyncPythonRuntime(name=name, sandbox=sandbox)


class OwnedRuntime:
    """A runtime that was made for an agent: the awaiting face of it, and its end.

    Cells that the agent runs come back with what `notices` gives, as their news; `port` may put something before what
    the agent sees. The object that the factory gave is kept, since an unreferenced runtime is
    closed.
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
        noticing = NoticingPort(self.face.core, self._notices)
        return noticing if self._before is None else self._before(noticing)

    async def close(self) -> None:
        await self.face.close()


class NoticingPort(RuntimePort):
    """The port of a runtime whose cells come back with news for their agent."""

    def __init__(self, core: RuntimeCore, notices: Callable[[], tuple[str, ...]]) -> None:
        super().__init__(core)
        self._notices = notices

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None,
        on_output: OnOutput | None,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> ExecutionResult:
        result = await super().execute(
            code, timeout=timeout, on_output=on_output, cause=cause, on_error=on_error
        )
        return replace(result, news=(*result.news, *self._notices()))
