"""What a model answers: text as it is written, and at last the whole turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cenote.models.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A finished answer.

    text: all of it; the deltas of its stream, joined.
    finish_reason: as the server put it: `stop`, `length` (cut off by a token limit), `content_filter`, ...;
        None when it named none.
    """

    text: str
    finish_reason: str | None
    usage: TokenUsage


ModelChunk = str | ModelTurn
"""One item of a stream: a piece of text that is never empty, or, once and last, the turn."""


def cut(text: str, size: int) -> Iterator[str]:
    """`text` in the pieces in which a model without a network delivers it."""
    return (text[start : start + size] for start in range(0, len(text), size))
