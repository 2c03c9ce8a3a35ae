"""Events of the CaveAgent library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cenote.cave_agent.streams import TokenUsage


class StopReason(StrEnum):
    """Why a run ended. LOOPING is Cenote's own; its other reasons are said in these words."""

    COMPLETED = "completed"
    MAX_STEPS = "max_steps"
    TIMEOUT = "timeout"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"
    MODEL_ERROR = "model_error"
    RUNTIME_ERROR = "runtime_error"
    INTERNAL_ERROR = "internal_error"
    LOOPING = "looping"


class StatusType(StrEnum):
    COMPACTING = "compacting"
    COMPACTED = "compacted"
    OUTPUT_RECOVERY = "output_recovery"


@dataclass(frozen=True)
class UserPromptEvent:
    content: str


@dataclass(frozen=True)
class TextEvent:
    content: str


@dataclass(frozen=True)
class ThinkingChunkEvent:
    content: str


@dataclass(frozen=True)
class ThinkingEvent:
    """All reasoning of one answer, and the milliseconds that it took."""

    content: str
    duration_ms: int


@dataclass(frozen=True)
class CodeEvent:
    code: str


@dataclass(frozen=True)
class ExecutionResultEvent:
    """output: all of it. persisted: whether the model was shown a part, and the whole is in `persisted_variable`."""

    output: str
    success: bool
    persisted: bool = False
    persisted_variable: str | None = None
    state_lost: bool = False


@dataclass(frozen=True)
class ExecutionTimeoutEvent:
    timeout: float
    state_lost: bool = False


@dataclass(frozen=True)
class SecurityErrorEvent:
    message: str


@dataclass(frozen=True)
class StatusEvent:
    """before, after: messages of the conversation, for COMPACTED."""

    status: StatusType
    before: int | None = None
    after: int | None = None
    recovery: int | None = None
    max_recoveries: int | None = None


@dataclass(frozen=True)
class FinalResponseEvent:
    content: str


@dataclass(frozen=True)
class StoppedEvent:
    """The last event of a run. model_error: what the model failed with, where that ended it."""

    content: str
    stop_reason: StopReason
    steps: int
    elapsed: float
    usage: TokenUsage
    model_error: str = ""


Event: TypeAlias = (
    UserPromptEvent
    | TextEvent
    | ThinkingChunkEvent
    | ThinkingEvent
    | CodeEvent
    | ExecutionResultEvent
    | ExecutionTimeoutEvent
    | SecurityErrorEvent
    | StatusEvent
    | FinalResponseEvent
    | StoppedEvent
)
