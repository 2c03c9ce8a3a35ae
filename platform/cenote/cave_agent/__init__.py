"""The public names of the CaveAgent library 0.8.0, over Cenote: `import cenote.cave_agent as cave_agent`.

A script of that library runs with this import in place of its own, and its code in a jail. docs/cave-agent.md says
name by name what is the same, what is not, and what is not there. Nothing else of Cenote imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cenote.cave_agent.agent import AgentResponse, CaveAgent
    from cenote.cave_agent.compaction import Compactor
    from cenote.cave_agent.events import (
        CodeEvent,
        Event,
        ExecutionResultEvent,
        ExecutionTimeoutEvent,
        FinalResponseEvent,
        SecurityErrorEvent,
        StatusEvent,
        StatusType,
        StoppedEvent,
        StopReason,
        TextEvent,
        ThinkingChunkEvent,
        ThinkingEvent,
        UserPromptEvent,
    )
    from cenote.cave_agent.messages import (
        AssistantMessage,
        CodeExecutionMessage,
        ExecutionResultMessage,
        Message,
        MessageRole,
        SummaryAcknowledgementMessage,
        SummaryMessage,
        SystemMessage,
        UserMessage,
    )
    from cenote.cave_agent.models import (
        LiteLLMModel,
        Model,
        ModelError,
        ModelResponse,
        OpenAIModel,
        PromptTooLongError,
        ProviderBillingError,
        ProviderError,
        StreamStalledError,
        TokenUsage,
    )
    from cenote.cave_agent.runtime import (
        BaseRuntime,
        Function,
        IPyKernelRuntime,
        IPythonRuntime,
        PreemptibleRuntime,
        Runtime,
        RuntimeExecutionError,
        Type,
        Variable,
    )
    from cenote.cave_agent.security import (
        AttributeRule,
        FunctionRule,
        ImportRule,
        RegexRule,
        SecurityChecker,
        SecurityError,
        SecurityRule,
        SecurityViolation,
    )
    from cenote.cave_agent.skills import Skill, SkillDiscovery, SkillRegistry

_NAMES = {
    "agent": ("AgentResponse", "CaveAgent"),
    "compaction": ("Compactor",),
    "events": (
        "CodeEvent",
        "Event",
        "ExecutionResultEvent",
        "ExecutionTimeoutEvent",
        "FinalResponseEvent",
        "SecurityErrorEvent",
        "StatusEvent",
        "StatusType",
        "StoppedEvent",
        "StopReason",
        "TextEvent",
        "ThinkingChunkEvent",
        "ThinkingEvent",
        "UserPromptEvent",
    ),
    "messages": (
        "AssistantMessage",
        "CodeExecutionMessage",
        "ExecutionResultMessage",
        "Message",
        "MessageRole",
        "SummaryAcknowledgementMessage",
        "SummaryMessage",
        "SystemMessage",
        "UserMessage",
    ),
    "models": (
        "LiteLLMModel",
        "Model",
        "ModelError",
        "ModelResponse",
        "OpenAIModel",
        "PromptTooLongError",
        "ProviderBillingError",
        "ProviderError",
        "StreamStalledError",
        "TokenUsage",
    ),
    "runtime": (
        "BaseRuntime",
        "Function",
        "IPyKernelRuntime",
        "IPythonRuntime",
        "PreemptibleRuntime",
        "Runtime",
        "RuntimeExecutionError",
        "Type",
        "Variable",
    ),
    "security": (
        "AttributeRule",
        "FunctionRule",
        "ImportRule",
        "RegexRule",
        "SecurityChecker",
        "SecurityError",
        "SecurityRule",
        "SecurityViolation",
    ),
    "skills": ("Skill", "SkillDiscovery", "SkillRegistry"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "AgentResponse",
    "AssistantMessage",
    "AttributeRule",
    "BaseRuntime",
    "CaveAgent",
    "CodeEvent",
    "CodeExecutionMessage",
    "Compactor",
    "Event",
    "ExecutionResultEvent",
    "ExecutionResultMessage",
    "ExecutionTimeoutEvent",
    "FinalResponseEvent",
    "Function",
    "FunctionRule",
    "ImportRule",
    "IPyKernelRuntime",
    "IPythonRuntime",
    "LiteLLMModel",
    "Message",
    "MessageRole",
    "Model",
    "ModelError",
    "ModelResponse",
    "OpenAIModel",
    "PreemptibleRuntime",
    "PromptTooLongError",
    "ProviderBillingError",
    "ProviderError",
    "RegexRule",
    "Runtime",
    "RuntimeExecutionError",
    "SecurityChecker",
    "SecurityError",
    "SecurityErrorEvent",
    "SecurityRule",
    "SecurityViolation",
    "Skill",
    "SkillDiscovery",
    "SkillRegistry",
    "StatusEvent",
    "StatusType",
    "StoppedEvent",
    "StopReason",
    "StreamStalledError",
    "SummaryAcknowledgementMessage",
    "SummaryMessage",
    "SystemMessage",
    "TextEvent",
    "ThinkingChunkEvent",
    "ThinkingEvent",
    "TokenUsage",
    "Type",
    "UserMessage",
    "UserPromptEvent",
    "Variable",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
