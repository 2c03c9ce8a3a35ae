"""Compaction, in the CaveAgent library's terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cenote.agent import CompactionPolicy
from cenote.cave_agent.messages import Message
from cenote.cave_agent.models import in_cenote
from cenote.tokens import approximate_tokens
from cenote_security.errors import UsageError

DEFAULT_CONTEXT_WINDOW = 128_000
COMPACT_BUFFER_TOKENS = 13_000
"""Tokens for what is added before the next check."""
_OUTPUT_RESERVE = 16_000
"""Tokens for an answer, where neither compactor nor model says how long one may be."""
_TARGET = 0.6
"""Share of the threshold that a conversation is brought down to."""


def compact_threshold(context_window: int, output_reserve: int) -> int:
    """Tokens from which on a conversation is made shorter."""
    threshold = context_window - output_reserve - COMPACT_BUFFER_TOKENS
    return threshold if threshold > 0 else context_window // 2


def default_token_estimate(text: str) -> int:
    """Tokens of a text, by Cenote's tokenizer."""
    return approximate_tokens(text)


def tiktoken_estimator(encoding: str = "o200k_base") -> Callable[[str], int]:
    """Counts with an encoding of tiktoken. Raises ImportError where that is missing."""
    import tiktoken  # slow to import, and loads its vocabulary

    encoder = tiktoken.get_encoding(encoding)
    return lambda text: len(encoder.encode(text, disallowed_special=()))


@dataclass(frozen=True)
class TokenAnchor:
    """A size that a server has reported, and what was counted then."""

    api_tokens: int
    heuristic_tokens: int


def estimate_tokens(
    messages: Iterable[Message],
    anchor: TokenAnchor | None = None,
    token_estimator: Callable[[str], int] | None = None,
) -> int:
    """Tokens of messages. With an anchor: what was reported, and what has been counted since."""
    count = token_estimator or default_token_estimate
    counted = sum(count(message.content) for message in messages)
    if anchor is None or anchor.api_tokens <= 0 or counted < anchor.heuristic_tokens:
        return counted
    return anchor.api_tokens + counted - anchor.heuristic_tokens


@dataclass
class Compactor:
    """Who summarises, from when on, and how tokens are counted. Cenote's own compaction works by these.

    output_reserve: tokens for an answer; None for what the agent's model, or this one, says (`max_output_tokens`).
    """

    model: Any
    context_window: int = field(default=DEFAULT_CONTEXT_WINDOW, kw_only=True)
    output_reserve: int | None = field(default=None, kw_only=True)
    token_estimator: Callable[[str], int] | None = field(default=None, kw_only=True)
    _adopted: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.context_window, int) or self.context_window < 1000:
            raise UsageError(f"context_window must be at least 1000, not {self.context_window!r:.100}")

    def adopt_output_reserve(self, tokens: int | None) -> None:
        """An agent's model answers with up to so many tokens. The largest counts."""
        if tokens is not None:
            self._adopted = max(tokens, self._adopted or 0)

    def threshold(self) -> int:
        """Tokens from which on a conversation is made shorter."""
        said = (self.output_reserve, self._adopted, getattr(self.model, "max_output_tokens", None))
        reserve = next((tokens for tokens in said if tokens is not None), _OUTPUT_RESERVE)
        return compact_threshold(self.context_window, reserve)

    def estimate_tokens(self, messages: Iterable[Message], *, anchor: TokenAnchor | None = None) -> int:
        return estimate_tokens(messages, anchor, self.token_estimator)

    def anchor(self, messages: Iterable[Message], api_tokens: int) -> TokenAnchor:
        return TokenAnchor(api_tokens, self.estimate_tokens(messages))

    def policy(self, agents_model: Any) -> CompactionPolicy:
        """The same for Cenote's agents."""
        trigger = min(self.threshold() / self.context_window, 1.0)
        policy = CompactionPolicy(
            trigger=trigger, target=trigger * _TARGET, count_tokens=self.token_estimator
        )
        return policy if self.model is agents_model else replace(policy, model=in_cenote(self.model))
