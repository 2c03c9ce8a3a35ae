"""What a run of an agent returns, and the error of an agent that is busy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from cenote.models.messages import TokenUsage
from cenote_security.errors import UsageError
from cenote_security.verdict import INFRASTRUCTURE, TASK, Verdict, limit


class ExecutionStatus(Enum):
    """How a run ended."""

    SUCCESS = "success"
    MAX_STEPS_REACHED = "max_steps_reached"
    INCOMPLETE = "incomplete"
    """There is no whole answer; `content` is what there is, and `AgentResponse.stop_reason` says why."""


class StopReason(Enum):
    """Why a run ended."""

    COMPLETED = "completed"
    """The model has answered: the only end that is a success."""
    MAX_STEPS = "max_steps"
    TIMEOUT = "timeout"
    """`max_run_time` is over."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The next call, or the rest of an answer, would have gone beyond a limit of tokens."""
    INCOMPLETE = "incomplete"
    """The model's answers were cut off, ended for no known reason, were empty, or were calls of tools that there are
    not, again and again."""
    CONTENT_FILTER = "content_filter"
    """The provider's filter stopped the answer."""
    REFUSAL = "refusal"
    """The model declined; `content` is what it said."""
    LOOPING = "looping"
    """The same block gave the same output three times in a row."""
    MODEL_ERROR = "model_error"
    """The model failed, in a run with `on_model_error="stop"`."""


_VERDICTS: Final = {
    StopReason.MAX_STEPS: limit("steps"),
    StopReason.TIMEOUT: limit("time"),
    StopReason.BUDGET_EXHAUSTED: limit("tokens"),
    StopReason.MODEL_ERROR: INFRASTRUCTURE,
}
"""Of the ends that are not the model's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUsage:
    """What one step cost.

    code: the block that ran, patch: the patch of earlier ones; both None for a step that answered in text.
    cause: names the model call in the history of the runtime: `Step.cause`, and what `blame` gives.
    error: why the block failed or was refused, as type and message; empty where it did not.
    usage: tokens of all model calls of the step, those for its compaction and for answers cut off included.
    model_seconds, cell_seconds: wall time of the model calls; time inside the jail.
    """

    number: int
    code: str | None = None
    patch: str | None = None
    cause: str = ""
    error: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)
    model_seconds: float = 0.0
    cell_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOutcome:
    """What one of the branches of `CaveAgent.branch` came to.

    score: of its final state; None, with the error, when it came to none. The rest is as in AgentResponse.
    """

    score: float | None = None
    content: str = ""
    status: ExecutionStatus | None = None
    steps_taken: int = 0
    token_usage: TokenUsage | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResponse:
    """The outcome of a run.

    content: the final answer, or, when the steps ran out, the last thing the model said.
    code_snippets: every block of the run that was to be executed, in order, refused ones included.
    steps_taken: answers of the model that counted as a step: a block or the final text.
    token_usage: of the whole run; `steps` has it step by step.
    stop_reason: why it ended. elapsed: seconds that it took. model_error: what the model failed with, as type and
        message, where that ended the run.
    score: of the branch that was kept, whose response this is; None for a run without branches.
    branches: what all of them came to, in their order.
    """

    content: str
    code_snippets: list[str] = field(default_factory=list)
    status: ExecutionStatus = ExecutionStatus.SUCCESS
    steps_taken: int = 0
    max_steps: int = 0
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    steps: tuple[StepUsage, ...] = ()
    score: float | None = None
    branches: tuple[BranchOutcome, ...] = ()
    stop_reason: StopReason = StopReason.COMPLETED
    elapsed: float = 0.0
    model_error: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """What a run without an answer is down to: the model (`task`), a limit, or what it ran on."""
        return None if self.completed else _VERDICTS.get(self.stop_reason, TASK)

    @property
    def completed(self) -> bool:
        """Whether the model has answered."""
        return self.stop_reason is StopReason.COMPLETED

    @property
    def error(self) -> str:
        """Why the last block of the run failed or was refused; empty where it did not."""
        blocks = [step for step in self.steps if step.code is not None or step.patch is not None]
        return blocks[-1].error if blocks else ""


class AgentBusyError(UsageError):
    """The agent is in the middle of a task. Nothing ran."""

    def __str__(self) -> str:
        return (
            "this agent is working on a task; wait for it, or use an agent for each of the tasks. Events left by a "
            "`break` go on until they are closed: async with contextlib.aclosing(agent.stream_events(...)) as events"
        )
