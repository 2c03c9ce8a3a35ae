"""What both faces of a runtime have without waiting: its name, its limits, and what an agent sees of it."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, NoReturn, Self, SupportsIndex

from cenote.harness import ApplyResult, BuildOptions, BuildResult, Diagnosis, Patch, Plan, diagnose
from cenote.runtime.core.arguments import Scope
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.results import Carried

if TYPE_CHECKING:
    from cenote.runtime.core.listeners import OnOutput
    from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
    from cenote_security.rules import SecurityViolation
    from cenote_worker.execution.results import ExecutionResult, OnError, Rollback, SnapshotInfo, VariableInfo


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
        from cenote.runtime.faces.asynchronous import AsyncPythonRuntime

        return AsyncPythonRuntime.over(self.core)


class RuntimeFace:
    """A runtime as its user holds it."""

    core: RuntimeCore

    @classmethod
    def holding(cls, core: RuntimeCore) -> Self:
        """The face of a core, which it owns alone."""
        runtime = cls.over(core)
        weakref.finalize(runtime, core.close)
        return runtime

    @classmethod
    def over(cls, core: RuntimeCore) -> Self:
        """A second face over a runtime that has another owner."""
        runtime = cls.__new__(cls)
        runtime.core = core
        return runtime

    def __repr__(self) -> str:
        return self.core.shown(type(self).__name__)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self.core.__reduce_ex__(protocol)

    @property
    def name(self) -> str:
        """What it is called, and found by in its store, its history or on its platform; empty if it has no name."""
        return self.core.name or ""

    @property
    def author(self) -> str:
        """Who the steps of this runtime are attributed to; empty for its owner."""
        return self.core.author

    @property
    def scope(self) -> Scope:
        """Whose names this runtime's calls are about."""
        return self.core.scope

    @property
    def isolation(self) -> str:
        """What holds this runtime's jail: `strict`, `landlock` or `none`."""
        return self.core.isolation

    @property
    def carried(self) -> Carried | None:
        """What a branch, a restored or a woken runtime has otherwise than the state that it was made of.

        None for a runtime that began with its injected values, before its jail is there, and on a platform: there
        the `news` of its first cell say it, as they do here.
        """
        return self.core.carried

    @property
    def network_log(self) -> tuple[Decision, ...]:
        """The latest decisions about requests to leave the jail, oldest first. The logger `cenote.egress` has all."""
        return self.core.network_log

    @property
    def limits(self) -> str:
        """Who holds the limits of this runtime's jail as a whole: `cgroup v1`, `cgroup v2` or `watchdog`."""
        return self.core.limits

    @property
    def port(self) -> RuntimePort:
        """What an agent sees of this runtime."""
        return RuntimePort(self.core)
