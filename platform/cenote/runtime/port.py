"""What an agent sees of a runtime, whichever face its user holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cenote.harness import ApplyResult, BuildOptions, BuildResult, Diagnosis, Patch, Plan, diagnose
from cenote.runtime.injectables import Function, Injectable, Type, Variable

if TYPE_CHECKING:
    from cenote.runtime.asynchronous import AsyncPythonRuntime
    from cenote.runtime.authors import Scope
    from cenote.runtime.core import RuntimeCore
    from cenote.runtime.listeners import OnOutput
    from cenote_security.rules import SecurityViolation
    from cenote_worker.results import ExecutionResult, OnError, Rollback, SnapshotInfo, VariableInfo


class RuntimePort:
    """Cells, injections and descriptions for an agent loop."""

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core

    @property
    def author(self) -> str:
        return self.core.author

    @property
    def scope(self) -> Scope:
        return self.core.scope

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.core.items.values() if isinstance(item, Function))

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(item for item in self.core.items.values() if isinstance(item, Variable))

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(item for item in self.core.items.values() if isinstance(item, Type))

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None,
        on_output: OnOutput | None,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> ExecutionResult:
        return await self._face().execute(code, timeout, on_output, cause=cause, on_error=on_error)

    async def inject(self, *items: Injectable) -> None:
        await self._face().inject(*items)

    @property
    def differing(self) -> tuple[str, ...]:
        """What of the namespace is not as it was in the state that it is a copy of, a line each."""
        carried = self.core.carried
        return () if carried is None else (*carried.missing, *carried.differing)

    async def describe(self) -> list[VariableInfo]:
        return await self._face().describe()

    async def snapshot(self, label: str) -> SnapshotInfo:
        return await self._face().snapshot(label)

    async def rollback(self, to: int | str) -> Rollback:
        return await self._face().rollback(to)

    async def diagnose(self, step: int) -> Diagnosis | None:
        """Why a step failed; None if it did not, or nothing is known of it."""
        history = await asyncio.to_thread(self.core.backend.read_history)
        return diagnose(history.tree.line(step), step) if step in history.tree else None

    async def plan(self, patch: Patch) -> Plan:
        """What the patch would have run again; nothing is executed."""
        return await self._face().state.plan(patch)

    async def apply(self, plan: Plan) -> ApplyResult:
        """Does what the plan says, all or nothing."""
        self.core.serve_hosts_on(asyncio.get_running_loop())
        return await self._face().state.apply(plan)

    async def build(self) -> BuildResult | None:
        """Brings artifacts up to date; a test that does not pass is told of, and takes nothing back."""
        state = await asyncio.to_thread(lambda: self._face().state)
        if not state.artifacts:
            return None
        self.core.serve_hosts_on(asyncio.get_running_loop())
        return await state.build(BuildOptions(keep_failing=True))

    def check(self, code: str) -> list[SecurityViolation]:
        """What the runtime's rules have against the code; empty when nothing."""
        return self.core.check(code)

    def interrupt(self) -> bool:
        return self.core.interrupt()

    def _face(self) -> AsyncPythonRuntime:
        from cenote.runtime.asynchronous import AsyncPythonRuntime

        return AsyncPythonRuntime.over(self.core)
