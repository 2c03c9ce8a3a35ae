"""A style: one way to let a model use tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.tokens.account import ModelCall
from benchmarks.tokens.conversation import Conversation


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What a conversation became in a style: the calls to the model, and the tool calls that were made."""

    model_calls: Sequence[ModelCall]
    tool_calls: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Style:
    """library: a package that `play` needs beyond Cenote's own; without it the style is left out."""

    name: str
    title: str
    play: Callable[[Conversation], Transcript]
    library: str = "cenote"
