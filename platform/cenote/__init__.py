"""Cenote: a sandboxed execution platform for LLM agents.

State lives in a persistent Python namespace, in a jail, and the model operates it with code.

    from cenote import CaveAgent, PythonRuntime, Variable

Names are loaded on first use, so that importing this package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cenote_security.errors import CenoteError
from cenote_security.network import Allow
from cenote_security.policy import Mount, SandboxPolicy

if TYPE_CHECKING:
    from cenote.agent import CaveAgent
    from cenote.connection import Platform, connect
    from cenote.runtime import (
        AsyncPythonRuntime,
        ExecutionResult,
        Function,
        ObjectReference,
        PythonRuntime,
        Type,
        Variable,
    )
    from cenote.skills import Skill
    from cenote.team import Budget, Team

__version__ = "0.1.0"

_HOMES = {
    "CaveAgent": "cenote.agent",
    "Platform": "cenote.connection",
    "connect": "cenote.connection",
    "Skill": "cenote.skills",
    **dict.fromkeys(("Budget", "Team"), "cenote.team"),
    **dict.fromkeys(
        (
            "AsyncPythonRuntime",
            "ExecutionResult",
            "Function",
            "ObjectReference",
            "PythonRuntime",
            "Type",
            "Variable",
        ),
        "cenote.runtime",
    ),
}

__all__ = [
    "Allow",
    "AsyncPythonRuntime",
    "Budget",
    "CaveAgent",
    "CenoteError",
    "connect",
    "ExecutionResult",
    "Function",
    "Mount",
    "ObjectReference",
    "Platform",
    "PythonRuntime",
    "SandboxPolicy",
    "Skill",
    "Team",
    "Type",
    "Variable",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
