"""What a model answers: text as it is written, and at last the whole turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cenote.models.usage import TokenUsage
from cenote_security.errors import UsageError


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A finished answer.

    text: all of it; the deltas of its stream, joined.
    finish_reason: as the server put it: `stop`, `length` (cut off by a token limit), `content_filter`, ...;
        None when it named none.
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


def cut(text: str, size: int) -> Iterator[str]:
    """`text` in the pieces in which a model without a network delivers it."""
    return (text[start : start + size] for start in range(0, len(text), size))


def check_chunk_size(size: object) -> None:
    """Raises UsageError for what `cut` cannot do with."""
    if not isinstance(size, int) or size < 1:
        raise UsageError(f"chunk_size is a number of characters, at least 1, not {size!r:.100}")
