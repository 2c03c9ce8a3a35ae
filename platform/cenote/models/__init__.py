"""Language models: what an agent speaks to, over the network, by a script or from a recording.

Names are loaded on first use: an agent with one kind of model pays for no other.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cenote.models.base import Model, estimate_usage
    from cenote.models.errors import (
        ContextLengthError,
        ModelError,
        ModelInterruptedError,
        ModelRequestError,
        ModelResponseError,
        ModelUnavailableError,
        ReplayMismatchError,
        ScriptExhaustedError,
    )
    from cenote.models.litellm_model import LiteLLMModel
    from cenote.models.messages import Message, ModelChunk, ModelTurn, TokenUsage
    from cenote.models.openai_server import OpenAIServerModel
    from cenote.models.replay import ReplayModel
    from cenote.models.retry import RetryPolicy
    from cenote.models.scripted import ScriptedModel

_HOMES = {
    "Model": "base",
    "ContextLengthError": "errors",
    "ModelError": "errors",
    "ModelInterruptedError": "errors",
    "ModelRequestError": "errors",
    "ModelResponseError": "errors",
    "ModelUnavailableError": "errors",
    "ReplayMismatchError": "errors",
    "ScriptExhaustedError": "errors",
    "estimate_usage": "base",
    "LiteLLMModel": "litellm_model",
    "Message": "messages",
    "OpenAIServerModel": "openai_server",
    "ReplayModel": "replay",
    "RetryPolicy": "retry",
    "ScriptedModel": "scripted",
    "ModelChunk": "messages",
    "ModelTurn": "messages",
    "TokenUsage": "messages",
}

__all__ = [
    "ContextLengthError",
    "estimate_usage",
    "LiteLLMModel",
    "Message",
    "Model",
    "ModelChunk",
    "ModelError",
    "ModelInterruptedError",
    "ModelRequestError",
    "ModelResponseError",
    "ModelTurn",
    "ModelUnavailableError",
    "OpenAIServerModel",
    "ReplayMismatchError",
    "ReplayModel",
    "RetryPolicy",
    "ScriptedModel",
    "ScriptExhaustedError",
    "TokenUsage",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
