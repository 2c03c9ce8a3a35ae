"""What a conversation costs, in tokens."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_security.errors import UsageError


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
