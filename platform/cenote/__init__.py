"""Cenote: a sandboxed execution platform for LLM agents.

State lives in a persistent Python namespace, in a jail, and the model operates it with code.

    from cenote import CaveAgent, PythonRuntime, Variable

Names are loaded on first use, so that importing this package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cenote_security.environment import Environment
from cenote_security.errors import CenoteError
from cenote_security.network import Allow, Secret
from cenote_security.policy import Mount, SandboxPolicy

if TYPE_CHECKING:
    from cenote.agent import (
        AgentResponse,
        CaveAgent,
        CodeEvent,
        CompactionPolicy,
        Event,
        FinalResponseEvent,
        SecurityErrorEvent,
        StoppedEvent,
        StopReason,
        TextEvent,
        ThinkingEvent,
    )
    from cenote.connection import (
        Platform,
        connect,
    )
    from cenote.models import (
        LiteLLMModel,
        Message,
        Model,
        ModelError,
        OpenAIServerModel,
        TokenUsage,
    )
    from cenote.runtime import (
        AsyncPythonRuntime,
        ExecutionResult,
        Function,
        IPyKernelRuntime,
        IPythonRuntime,
        ObjectReference,
        PythonRuntime,
        RuntimeExecutionError,
        Type,
        Variable,
    )
    from cenote.security import (
        AttributeRule,
        FunctionRule,
        ImportRule,
        RegexRule,
        SecurityChecker,
        SecurityError,
        SecurityRule,
        SecurityViolation,
    )
    from cenote.skills import (
        Skill,
        SkillDiscovery,
    )
    from cenote.team import (
        Budget,
        Team,
    )

__version__ = "0.1.0"

_NAMES = {
    "cenote.agent": (
        "AgentResponse",
        "CaveAgent",
        "CodeEvent",
        "CompactionPolicy",
        "Event",
        "FinalResponseEvent",
        "SecurityErrorEvent",
        "StoppedEvent",
        "StopReason",
        "TextEvent",
        "ThinkingEvent",
    ),
    "cenote.connection": (
        "connect",
        "Platform",
    ),
    "cenote.models": (
        "LiteLLMModel",
        "Message",
        "Model",
        "ModelError",
        "OpenAIServerModel",
        "TokenUsage",
    ),
    "cenote.runtime": (
        "AsyncPythonRuntime",
        "ExecutionResult",
        "Function",
        "IPyKernelRuntime",
        "IPythonRuntime",
        "ObjectReference",
        "PythonRuntime",
        "RuntimeExecutionError",
        "Type",
        "Variable",
    ),
    "cenote.security": (
        "AttributeRule",
        "FunctionRule",
        "ImportRule",
        "RegexRule",
        "SecurityChecker",
        "SecurityError",
        "SecurityRule",
        "SecurityViolation",
    ),
    "cenote.skills": (
        "Skill",
        "SkillDiscovery",
    ),
    "cenote.team": (
        "Budget",
        "Team",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "AgentResponse",
    "Allow",
    "AsyncPythonRuntime",
    "AttributeRule",
    "Budget",
    "CaveAgent",
    "CenoteError",
    "CodeEvent",
    "CompactionPolicy",
    "connect",
    "Environment",
    "Event",
    "ExecutionResult",
    "FinalResponseEvent",
    "Function",
    "FunctionRule",
    "ImportRule",
    "IPyKernelRuntime",
    "IPythonRuntime",
    "LiteLLMModel",
    "Message",
    "Model",
    "ModelError",
    "Mount",
    "ObjectReference",
    "OpenAIServerModel",
    "Platform",
    "PythonRuntime",
    "RegexRule",
    "RuntimeExecutionError",
    "SandboxPolicy",
    "Secret",
    "SecurityChecker",
    "SecurityError",
    "SecurityErrorEvent",
    "SecurityRule",
    "SecurityViolation",
    "Skill",
    "SkillDiscovery",
    "StoppedEvent",
    "StopReason",
    "Team",
    "TextEvent",
    "ThinkingEvent",
    "TokenUsage",
    "Type",
    "Variable",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
