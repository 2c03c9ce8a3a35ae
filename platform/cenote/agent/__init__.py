"""Agents: a model that writes code, and a runtime in which that code runs."""

from cenote.agent.act.agent import CaveAgent, LogLevel
from cenote.agent.act.branches import AllowanceSpentError, BranchesFailedError
from cenote.agent.act.driver import AnswerTimeoutError
from cenote.agent.decide.compaction import CompactionPolicy
from cenote.agent.prompt.prompts import (
    DEFAULT_INSTRUCTIONS,
    DEFAULT_SYSTEM_INSTRUCTIONS,
    DEFAULT_SYSTEM_PROMPT_TEMPLATE,
)
from cenote.agent.vocabulary.events import (
    CodeDeltaEvent,
    CodeEvent,
    CompactedEvent,
    CompactingEvent,
    Event,
    EventType,
    ExecutionErrorEvent,
    ExecutionOutputEvent,
    ExecutionOutputExceededEvent,
    FinalResponseEvent,
    MaxStepsReachedEvent,
    PatchEvent,
    SecurityErrorEvent,
    StoppedEvent,
    TextEvent,
    ThinkingEvent,
)
from cenote.agent.vocabulary.response import (
    AgentBusyError,
    AgentResponse,
    BranchOutcome,
    ExecutionStatus,
    StepUsage,
    StopReason,
)
from cenote.agent.vocabulary.runtime_port import AgentRuntime, SubAgent

__all__ = [
    "AgentBusyError",
    "AgentResponse",
    "AgentRuntime",
    "AllowanceSpentError",
    "AnswerTimeoutError",
    "BranchesFailedError",
    "BranchOutcome",
    "CaveAgent",
    "CodeDeltaEvent",
    "CodeEvent",
    "CompactedEvent",
    "CompactingEvent",
    "CompactionPolicy",
    "DEFAULT_INSTRUCTIONS",
    "DEFAULT_SYSTEM_INSTRUCTIONS",
    "DEFAULT_SYSTEM_PROMPT_TEMPLATE",
    "Event",
    "EventType",
    "ExecutionErrorEvent",
    "ExecutionOutputEvent",
    "ExecutionOutputExceededEvent",
    "ExecutionStatus",
    "FinalResponseEvent",
    "LogLevel",
    "MaxStepsReachedEvent",
    "PatchEvent",
    "SecurityErrorEvent",
    "StepUsage",
    "StoppedEvent",
    "StopReason",
    "SubAgent",
    "TextEvent",
    "ThinkingEvent",
]
