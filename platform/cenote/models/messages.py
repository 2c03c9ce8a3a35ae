"""What a conversation with a model consists of: messages, the turns that answer them, the tokens that it costs.

An answer comes as text while it is written, and at last as the whole turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, get_args

from cenote_security.errors import UsageError

Role = Literal["system", "user", "assistant"]

MessageKind = Literal["task", "answer", "code", "output", "note", "summary"]
"""What a part of an agent's conversation is for: what was asked, the answer, a block of code and what it gave, what
the agent says to the model by itself, and what stands for parts that were left out."""


@dataclass(frozen=True, slots=True)
class Message:
    """Who said what. Text only: values stay in the runtime, a model sees what was printed of them.

    kind: what it is for, in the conversation of an agent; no model is sent it, and it makes no difference between
        messages. None where that is not known: an agent takes a user's message for a task and others for answers.

    Raises UsageError for another role than `system`, `user` or `assistant`, another kind than those of MessageKind,
    or content that is not text.
    """

    role: Role
    content: str
    kind: MessageKind | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise UsageError(f"the role of a message is system, user or assistant, not {self.role!r}")
        if not isinstance(self.content, str):
            raise UsageError(f"the content of a message is text, not {type(self.content).__name__}")
        if self.kind is not None and self.kind not in get_args(MessageKind):
            kinds = ", ".join(get_args(MessageKind))
            raise UsageError(f"the kind of a message is one of {kinds}, not {self.kind!r:.100}")

    @classmethod
    def system(cls, content: str) -> Message:
        return cls("system", content)

    @classmethod
    def user(cls, content: str) -> Message:
        return cls("user", content)

    @classmethod
    def assistant(cls, content: str) -> Message:
        return cls("assistant", content)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one model call, or the sum of several: `sum(usages, TokenUsage())`.

    prompt: tokens sent, those in `cached` included. cached: the part that the server had cached.
    completion: tokens that the model wrote, hidden reasoning included where the server reports it.
    estimated: True when any part was counted here rather than reported by the server.
    """

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        if min(self.prompt, self.cached, self.completion) < 0:
            raise UsageError(f"tokens cannot be negative: {self!r}")

    @property
    def prompt_tokens(self) -> int:
        """`prompt`, as OpenAI's API and the CaveAgent library call it; likewise the next two."""
        return self.prompt

    @property
    def completion_tokens(self) -> int:
        return self.completion

    @property
    def total_tokens(self) -> int:
        return self.total

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            prompt=self.prompt + other.prompt,
            cached=self.cached + other.cached,
            completion=self.completion + other.completion,
            estimated=self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A finished answer.

    text: all of it; the deltas of its stream, joined. Of a refusal, also what is said in place of an answer, which
        is in no delta.
    finish_reason: as the server put it: `stop`, `length` (cut off by a token limit), `content_filter`, ...;
        `refusal` where the model declined; None when the server named none, and so did not say that this is all.
    usage: `estimate_usage` gives it where a server reports none.

    Raises UsageError for another usage than a TokenUsage.
    """

    text: str
    finish_reason: str | None
    usage: TokenUsage

    def __post_init__(self) -> None:
        if not isinstance(self.usage, TokenUsage):
            raise UsageError(
                f"the usage of a ModelTurn is a TokenUsage, not {self.usage!r:.100}; where a server reports none, "
                f"estimate_usage(messages, text, model_id) of cenote.models gives it"
            )


ModelChunk = str | ModelTurn
"""One item of a stream: a piece of text that is never empty, or, once and last, the turn."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of what a model writes to itself, where its server sends that apart from the answer."""

    text: str


ReasonedChunk = ModelChunk | ReasoningDelta
"""One item of a stream with reasoning."""

REFUSAL = "refusal"
"""The finish reason of a turn in which the model declined."""


class TurnEnd(Enum):
    """What a finish reason says of the answer."""

    WHOLE = "whole"
    CUT = "cut off by a limit of length"
    FILTERED = "stopped by a filter"
    REFUSED = "refused by the model"
    UNKNOWN = "ended for no reason that is known, or for none"


# OpenAI's, Anthropic's, Gemini's, Cohere's, Mistral's, Bedrock's, Zhipu's and Hugging Face's words, in lower case.
_ENDINGS = {
    TurnEnd.WHOLE: "stop end_turn stop_sequence complete eos eos_token "
    "tool_calls tool_call tool_use tooluse function_call",
    TurnEnd.CUT: "length max_tokens max_output_tokens max_length model_length token_limit continuation compaction "
    "pause_turn model_context_window_exceeded",
    TurnEnd.FILTERED: "content_filter content_filtered safety recitation blocklist prohibited_content spii language "
    "sensitive guardrail_intervened error_toxic image_safety image_prohibited_content image_recitation escalation",
    TurnEnd.REFUSED: REFUSAL,
}
_ENDING_OF = {reason: ending for ending, reasons in _ENDINGS.items() for reason in reasons.split()}


def ending_of(finish_reason: str | None) -> TurnEnd:
    """What a server's finish reason says. Only what is known to be a good end is one."""
    return _ENDING_OF.get((finish_reason or "").lower(), TurnEnd.UNKNOWN)


def cut(turn: ModelTurn, size: int) -> Iterator[str]:
    """The pieces of text in which a model without a network delivers a turn: of a refusal none."""
    text = "" if ending_of(turn.finish_reason) is TurnEnd.REFUSED else turn.text
    return pieces(text, size)


def pieces(text: str, size: int) -> Iterator[str]:
    """`text` in pieces of so many characters."""
    return (text[start : start + size] for start in range(0, len(text), size))


def check_chunk_size(size: object) -> None:
    """Raises UsageError for what `cut` cannot do with."""
    if not isinstance(size, int) or size < 1:
        raise UsageError(f"chunk_size is a number of characters, at least 1, not {size!r:.100}")
