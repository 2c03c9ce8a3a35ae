"""Agents: a model that writes code, and a runtime in which that code runs."""

from cenote.agent.agent import CaveAgent
from cenote.agent.allowance import AllowanceSpentError
from cenote.agent.attempts import BranchesFailedError
from cenote.agent.compaction import CompactionPolicy
from cenote.agent.driver import AnswerTimeoutError
from cenote.agent.errors import AgentBusyError
from cenote.agent.events import (
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
from cenote.agent.log import LogLevel
from cenote.agent.port import AgentRuntime, SubAgent
from cenote.agent.prompts import (
    DEFAULT_INSTRUCTIONS,
    DEFAULT_SYSTEM_INSTRUCTIONS,
    DEFAULT_SYSTEM_PROMPT_TEMPLATE,
)
from cenote.agent.response import AgentResponse, BranchOutcome, ExecutionStatus, StepUsage, StopReason

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
