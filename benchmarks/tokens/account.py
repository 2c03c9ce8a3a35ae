"""Counts the cost of a conversation: each call to the model pays for its whole prompt again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

Count = Callable[[str], int]

PER_PART = 3
"""Tokens around a message beside its role and content, as chat formats have them."""

CACHED_PRICE = 0.1
COMPLETION_PRICE = 5.0
"""Relative to a fresh prompt token, as most providers charge now. For the two prices only."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One request and its answer.

    prompt: tool schemas first, where there are any, then one text per message, role included. exchange: after which
    message of the user, from 0.
    """

    prompt: tuple[str, ...]
    completion: str
    exchange: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Tokens of a conversation. cacheable: the part of `prompt` that the previous call had already sent."""

    calls: int = 0
    prompt: int = 0
    cacheable: int = 0
    completion: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            calls=self.calls + other.calls,
            prompt=self.prompt + other.prompt,
            cacheable=self.cacheable + other.cacheable,
            completion=self.completion + other.completion,
        )

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    @property
    def uncached_price(self) -> float:
        """In fresh prompt tokens, without a cache."""
        return self.prompt + COMPLETION_PRICE * self.completion

    @property
    def price(self) -> float:
        """In fresh prompt tokens, with a cache that always hits."""
        fresh = self.prompt - self.cacheable
        return fresh + CACHED_PRICE * self.cacheable + COMPLETION_PRICE * self.completion


def add_up(calls: Sequence[ModelCall], count: Count, *, after: ModelCall | None = None) -> Cost:
    """Cost of a conversation of these calls. after: the call before the first one, which has filled the cache."""
    prompts = [call.prompt for call in calls]
    sent = [after.prompt, *prompts] if after is not None else prompts
    return Cost(
        calls=len(calls),
        prompt=sum(_size(prompt, count) for prompt in prompts),
        cacheable=sum(_size(_common(one, other), count) for one, other in pairwise(sent)),
        completion=sum(count(call.completion) for call in calls),
    )


def _size(parts: Sequence[str], count: Count) -> int:
    return sum(PER_PART + count(part) for part in parts)


def _common(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The messages that both prompts begin with: what a prefix cache can reuse."""
    pairs = zip(before, after, strict=False)
    return [left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
