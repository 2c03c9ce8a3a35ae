"""Agents: a model that writes code, and a runtime in which that code runs."""

from cenote.agent.agent import CaveAgent
from cenote.agent.allowance import AllowanceSpentError
from cenote.agent.attempts import BranchesFailedError
from cenote.agent.errors import AgentBusyError
from cenote.agent.events import Event, EventType
from cenote.agent.log import LogLevel
from cenote.agent.port import AgentRuntime, SubAgent
from cenote.agent.prompts import (
    DEFAULT_INSTRUCTIONS,
    DEFAULT_SYSTEM_INSTRUCTIONS,
    DEFAULT_SYSTEM_PROMPT_TEMPLATE,
)
from cenote.agent.response import AgentResponse, BranchOutcome, ExecutionStatus, StepUsage

__all__ = [
    "AgentBusyError",
    "AgentResponse",
    "AgentRuntime",
    "AllowanceSpentError",
    "BranchesFailedError",
    "BranchOutcome",
    "CaveAgent",
    "DEFAULT_INSTRUCTIONS",
    "DEFAULT_SYSTEM_INSTRUCTIONS",
    "DEFAULT_SYSTEM_PROMPT_TEMPLATE",
    "Event",
    "EventType",
    "ExecutionStatus",
    "LogLevel",
    "StepUsage",
    "SubAgent",
]
