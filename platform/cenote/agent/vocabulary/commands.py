"""The language between the agent's decisions and the world: commands go out, happenings come in.

A decision is a generator (a `Flow`). It yields commands; its driver carries each out and sends back what
happened. The flow itself does no I/O and reads no clock: a test is a list of happenings and a list of commands.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from cenote.agent.vocabulary.events import Event
from cenote.harness.applying.apply import ApplyResult
from cenote.harness.artifacts.build_result import BuildResult
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.plan import Plan
from cenote.harness.questions.diagnosis import Diagnosis
from cenote.models.messages import Message, TokenUsage
from cenote.runtime.core.arguments import Scope
from cenote.runtime.inject.injectables import Function, Type, Variable
from cenote_security.errors import CenoteError
from cenote_worker.execution.results import ExecutionResult, VariableInfo

MAX_NAMES = 50
"""Variables and functions that a sentence names."""

# -- commands -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell the caller. Nothing comes back."""

    event: Event


@dataclass(frozen=True, slots=True)
class DescribeRuntime:
    """What is in the runtime? A `RuntimeDescription` comes back."""


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Send these messages to the model. Nothing comes back. is_summary: they ask for a summary."""

    messages: tuple[Message, ...]
    is_summary: bool = False


@dataclass(frozen=True, slots=True)
class NextChunk:
    """Read on in the model's answer. `TextDelta`, `Thought`, `TurnEnded` or `ModelFailed` comes back."""


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Stop the model in the middle of its answer. `TurnStopped` comes back."""


@dataclass(frozen=True, slots=True)
class CheckCode:
    """What have the runtime's rules against this code? `Checked` comes back."""

    code: str


@dataclass(frozen=True, slots=True)
class ExecuteCode:
    """Run this cell. `CellEnded` comes back. cause: the model call that wrote it, for the runtime's history.

    atomic: it leaves nothing behind if it fails.
    """

    code: str
    cause: str = ""
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Why did this step fail? `Diagnosed` comes back."""

    step: int


@dataclass(frozen=True, slots=True)
class PlanPatch:
    """What would this patch have run again? `Planned` comes back; nothing has run."""

    patch: Patch


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """Do what the plan says, all or nothing. `PlanApplied` comes back."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class BuildArtifacts:
    """Bring what is watched over up to date. `ArtifactsBuilt` comes back."""


@dataclass(frozen=True, slots=True)
class SettleSkills:
    """Inject what skills that were activated in the last cell bring along. `Settled` comes back."""


@dataclass(frozen=True, slots=True)
class SettleLabels:
    """Keep or go back to states, as the last cell has asked for. `Settled` comes back."""


@dataclass(frozen=True, slots=True)
class KeepOutput:
    """Keep the full output of a cell, readable from the namespace. `OutputKept` comes back."""

    cell: int
    text: str


Command: TypeAlias = (
    Emit
    | DescribeRuntime
    | StartTurn
    | NextChunk
    | StopTurn
    | CheckCode
    | ExecuteCode
    | Diagnose
    | PlanPatch
    | ApplyPlan
    | BuildArtifacts
    | SettleSkills
    | SettleLabels
    | KeepOutput
)

# -- happenings ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDescription:
    """What a runtime holds.

    described: its variables, those that were not injected included. skills, going_back: what the model is told of
    skills, and of states that it can go back to.
    together: how the agent works with others who are attached to the runtime; empty for the owner.
    differing: what is not as it was in the state that the namespace is a copy of, a line each.
    """

    functions: tuple[Function, ...] = ()
    variables: tuple[Variable, ...] = ()
    types: tuple[Type, ...] = ()
    described: tuple[VariableInfo, ...] = ()
    skills: str = ""
    going_back: str = ""
    together: Scope | Literal[""] = ""
    differing: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """The names that are there, for a sentence. Variables' names come out of a jail: only names pass."""
        variables = [info.name for info in self.described if info.name.isidentifier()]
        names = list(dict.fromkeys([*variables, *(function.name for function in self.functions)]))
        more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
        return ", ".join(names[:MAX_NAMES] + more) or "nothing"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the model's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """The next piece of what the model writes to itself, apart from its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The model's answer is complete, or was cut off; `finish_reason` says which. text: what a refusal says."""

    finish_reason: str | None
    usage: TokenUsage
    seconds: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class TurnStopped:
    """The answer was stopped after so many seconds."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model call failed."""

    error: CenoteError
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Checked:
    """The rules that the code breaks, one line each; none if it may run."""

    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellEnded:
    """A cell ran."""

    result: ExecutionResult


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """None where the history knows of no failure of that step."""

    diagnosis: Diagnosis | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, or why there is none: the patch does not fit the history."""

    plan: Plan | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class PlanApplied:
    """What came of a plan, or why nothing was done."""

    result: ApplyResult | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ArtifactsBuilt:
    """What came of a build; None if nothing is watched over, or with why nothing was done."""

    result: BuildResult | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the model must know of it, one line each: what kept skills from being injected, what became of states."""

    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputKept:
    """An expression that gives the kept text when a cell evaluates it, such as `read_output(3)`."""

    handle: str


CommandResult: TypeAlias = (
    RuntimeDescription
    | TextDelta
    | Thought
    | TurnEnded
    | TurnStopped
    | ModelFailed
    | Checked
    | CellEnded
    | Diagnosed
    | Planned
    | PlanApplied
    | ArtifactsBuilt
    | Settled
    | OutputKept
)

T = TypeVar("T")
Flow: TypeAlias = Generator[Command, CommandResult | None, T]


def ask(command: Command, kind: type[T]) -> Flow[T]:
    """Yield a command that one kind of happening answers."""
    answer = yield command
    if not isinstance(answer, kind):
        raise TypeError(
            f"{type(command).__name__} is answered by {kind.__name__}, not {type(answer).__name__}"
        )
    return answer
