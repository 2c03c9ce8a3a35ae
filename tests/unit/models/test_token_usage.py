"""Token usage adds up."""

from __future__ import annotations

import pytest

from cenote.models.messages import TokenUsage
from cenote_security.errors import UsageError


def test_sum_of_nothing_is_zero() -> None:
    """`sum` starts from an empty usage, which is exact."""
    assert TokenUsage(0, 0, 0, estimated=False) == sum([], TokenUsage())


def test_sums_are_estimated_when_a_part_is() -> None:
    """A sum is as exact as its least exact part."""
    parts = [TokenUsage(10, 4, 2), TokenUsage(5, 0, 3, estimated=True)]
    assert TokenUsage(15, 4, 5, estimated=True) == sum(parts, TokenUsage())


def test_total_is_what_went_both_ways() -> None:
    """Cached tokens are part of the prompt, so they count once."""
    usage = TokenUsage(10, 4, 2)
    assert 12 == usage.total
    assert (10, 2, 12) == (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)


def test_negative_tokens_are_refused() -> None:
    """Tokens cannot be returned."""
    with pytest.raises(UsageError):
        TokenUsage(prompt=-1)
