"""A style: one way for a model to use tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.tokens.account import ModelCall
from benchmarks.tokens.conversation import Conversation


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A conversation in a style: the calls to the model, and the tool calls that were made."""

    model_calls: Sequence[ModelCall]
    tool_calls: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Style:
    """library: a package that `play` needs beyond Cenote's dependencies; without it the style is left out."""

    name: str
    title: str
    play: Callable[[Conversation], Transcript]
    library: str = "cenote"
