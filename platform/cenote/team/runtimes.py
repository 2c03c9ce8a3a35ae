"""Where the runtimes of a team come from. Nothing else in this room knows whether they are near or far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cenote.agent import AgentRuntime
from cenote.agent.port_around import PortAround
from cenote.harness import ApplyResult, BuildResult, Diagnosis, Patch, Plan
from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote.runtime.listeners import OnOutput
from cenote.runtime.port import RuntimePort
from cenote_security.policy import SandboxPolicy
from cenote_worker.results import ExecutionResult, OnError, Rollback, SnapshotInfo

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


class NoticingPort(PortAround[RuntimePort]):
    """The port of a runtime whose cells come back with news for their agent."""

    def __init__(self, inner: RuntimePort, notices: Callable[[], tuple[str, ...]]) -> None:
        super().__init__(inner)
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
        result = await self.inner.execute(
            code, timeout=timeout, on_output=on_output, cause=cause, on_error=on_error
        )
        return replace(result, news=(*result.news, *self._notices()))

    async def snapshot(self, label: str) -> SnapshotInfo:
        return await self.inner.snapshot(label)

    async def rollback(self, to: int | str) -> Rollback:
        return await self.inner.rollback(to)

    async def diagnose(self, step: int) -> Diagnosis | None:
        return await self.inner.diagnose(step)

    async def plan(self, patch: Patch) -> Plan:
        return await self.inner.plan(patch)

    async def apply(self, plan: Plan) -> ApplyResult:
        return await self.inner.apply(plan)

    async def build(self) -> BuildResult | None:
        return await self.inner.build()
