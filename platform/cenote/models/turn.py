"""What a model answers: text as it is written, and at last the whole turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from cenote.models.usage import TokenUsage
from cenote_security.errors import UsageError


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


class Ending(Enum):
    """What a finish reason says of the answer."""

    WHOLE = "whole"
    CUT = "cut off by a limit of length"
    FILTERED = "stopped by a filter"
    REFUSED = "refused by the model"
    UNKNOWN = "ended for no reason that is known, or for none"


# OpenAI's, Anthropic's, Gemini's, Cohere's, Mistral's, Bedrock's, Zhipu's and Hugging Face's words, in lower case.
_ENDINGS = {
    Ending.WHOLE: "stop end_turn stop_sequence complete eos eos_token "
    "tool_calls tool_call tool_use tooluse function_call",
    Ending.CUT: "length max_tokens max_output_tokens max_length model_length token_limit continuation compaction "
    "pause_turn model_context_window_exceeded",
    Ending.FILTERED: "content_filter content_filtered safety recitation blocklist prohibited_content spii language "
    "sensitive guardrail_intervened error_toxic image_safety image_prohibited_content image_recitation escalation",
    Ending.REFUSED: REFUSAL,
}
_ENDING_OF = {reason: ending for ending, reasons in _ENDINGS.items() for reason in reasons.split()}


def ending_of(finish_reason: str | None) -> Ending:
    """What a server's finish reason says. Only what is known to be a good end is one."""
    return _ENDING_OF.get((finish_reason or "").lower(), Ending.UNKNOWN)


def cut(turn: ModelTurn, size: int) -> Iterator[str]:
    """The pieces of text in which a model without a network delivers a turn: of a refusal none."""
    text = "" if ending_of(turn.finish_reason) is Ending.REFUSED else turn.text
    return pieces(text, size)


def pieces(text: str, size: int) -> Iterator[str]:
    """`text` in pieces of so many characters."""
    return (text[start : start + size] for start in range(0, len(text), size))


def check_chunk_size(size: object) -> None:
    """Raises UsageError for what `cut` cannot do with."""
    if not isinstance(size, int) or size < 1:
        raise UsageError(f"chunk_size is a number of characters, at least 1, not {size!r:.100}")
