"""Token usage counted here, where no server reports it."""

from __future__ import annotations

from collections.abc import Sequence

from cenote import tokens
from cenote.models.messages import Message
from cenote.models.usage import TokenUsage


def estimate_usage(messages: Sequence[Message], text: str, model_id: str | None = None) -> TokenUsage:
    """Usage of a call that sent `messages` and got `text`: for servers that report none, and for streams that
    were closed early or broke off.
    """
    return TokenUsage(
        prompt=tokens.count_messages(messages, model_id, tokens.approximate_tokens),
        completion=tokens.approximate_tokens(text, model_id),
        estimated=True,
    )
