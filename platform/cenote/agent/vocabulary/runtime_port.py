"""What an agent needs of a runtime, and a runtime around another one that changes some of what passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from cenote.agent.vocabulary.response import AgentResponse
from cenote.harness.applying.apply import ApplyResult
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.plan import Plan
from cenote.harness.questions.diagnosis import Diagnosis
from cenote.runtime.core.arguments import Scope
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote_worker.execution.results import (
    ExecutionResult,
    OnError,
    Rollback,
    SnapshotInfo,
    StreamName,
    VariableInfo,
)


class Violation(Protocol):
    """One rule that a piece of code breaks."""

    @property
    def message(self) -> str:
        """One line: where, what, and what to do instead."""


class AgentRuntime(Protocol):
    """A runtime as an agent sees it.

    `functions`, `variables` and `types` hold the very objects that were injected; they grow and shrink as
    injections do. `author` and `scope` are as given to `attach`; the author of an owner's runtime is empty.
    """

    @property
    def author(self) -> str: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def functions(self) -> Sequence[Function]: ...

    @property
    def variables(self) -> Sequence[Variable]: ...

    @property
    def types(self) -> Sequence[Type]: ...

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None,
        on_output: Callable[[StreamName, str], None] | None,
        cause: str = "",
    ) -> ExecutionResult:
        """Run a cell. Cancelling this call ends the cell."""

    async def inject(self, *items: Injectable) -> None:
        """Put items into the namespace, all or none; items of one call share state. Raises NameExistsError."""

    async def describe(self) -> Sequence[VariableInfo]:
        """The variables of the namespace, without their values."""

    def check(self, code: str) -> Sequence[Violation]:
        """What the runtime's rules have against `code`; empty if nothing. The code doesn't run."""


class ReversibleRuntime(AgentRuntime, Protocol):
    """A runtime whose states are kept, and gone back to."""

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None,
        on_output: Callable[[StreamName, str], None] | None,
        cause: str = "",
        on_error: OnError = "keep",
    ) -> ExecutionResult:
        """Run a cell. on_error: `rollback` undoes one that fails. Cancelling this call ends the cell."""

    async def snapshot(self, label: str) -> SnapshotInfo:
        """Keep the state. Raises UnavailableError with the reason why it cannot be."""

    async def rollback(self, to: int | str) -> Rollback:
        """Go back to the state after a step, or to that of a label. Raises NotKeptError, UnavailableError."""


@runtime_checkable
class PatchableRuntime(Protocol):
    """What an agent needs besides, to patch steps that have run."""

    async def diagnose(self, step: int) -> Diagnosis | None:
        """Why a step failed; None if it did not, or nothing is known of it."""

    async def plan(self, patch: Patch) -> Plan:
        """What the patch would have run again. Raises PatchConflictError."""

    async def apply(self, plan: Plan) -> ApplyResult:
        """Does what the plan says, all or nothing. Raises StalePlanError, StateNotKeptError."""

    async def build(self) -> BuildResult | None:
        """Brings artifacts up to date and runs tests that it concerns; what is made again stays when one of them does
        not pass. None where nothing is watched over. Raises UnbuildableError, StateNotKeptError."""


@runtime_checkable
class CopiedRuntime(Protocol):
    """A runtime that may have begun with a copy of another state."""

    @property
    def differing(self) -> Sequence[str]:
        """What of the namespace is not as it was in the state that it is a copy of, a line each."""


@runtime_checkable
class HasPort(Protocol):
    """A runtime that agents can work with."""

    @property
    def port(self) -> AgentRuntime: ...


class SubAgent(ABC):
    """What an agent may be to another one, as a variable in its runtime."""

    @abstractmethod
    async def run(self, task: str) -> AgentResponse:
        """Do a task."""

    @property
    @abstractmethod
    def variable_names(self) -> tuple[str, ...]:
        """Names of the variables that were injected into this agent's runtime."""


class PassingPort:
    """Describes itself as the inner port does. Subclasses implement the rest of AgentRuntime."""

    def __init__(self, inner: AgentRuntime) -> None:
        self._inner = inner

    @property
    def author(self) -> str:
        return self._inner.author

    @property
    def scope(self) -> Scope:
        return self._inner.scope

    @property
    def functions(self) -> Sequence[Function]:
        return self._inner.functions

    @property
    def variables(self) -> Sequence[Variable]:
        return self._inner.variables

    @property
    def types(self) -> Sequence[Type]:
        return self._inner.types

    def check(self, code: str) -> Sequence[Violation]:
        return self._inner.check(code)
