"""Counting what a conversation costs."""

from __future__ import annotations

import pytest
from benchmarks.tokens.account import PER_PART, Cost, ModelCall, add_up
from hypothesis import given
from hypothesis import strategies as st

texts = st.lists(st.text(alphabet="ab ", max_size=5), max_size=5)


def words(text: str) -> int:
    return len(text.split())


def test_each_call_pays_for_its_whole_prompt() -> None:
    """A message that stays is paid for on every call, and everything sent before is cacheable."""
    calls = [
        ModelCall(prompt=("a b", "c"), completion="d e f"),
        ModelCall(prompt=("a b", "c", "d e f", "g"), completion="h"),
    ]
    first, second = 3 + 2 * PER_PART, 7 + 4 * PER_PART
    assert Cost(calls=2, prompt=first + second, cacheable=first, completion=4) == add_up(calls, words)


def test_a_changed_message_ends_the_cacheable_prefix() -> None:
    """A cache reuses a prefix: everything after the first difference is new, even if equal."""
    calls = [
        ModelCall(prompt=("system at 10:00", "question"), completion=""),
        ModelCall(prompt=("system at 10:01", "question"), completion=""),
    ]
    assert 0 == add_up(calls, words).cacheable


def test_what_was_sent_before_is_cached() -> None:
    """A conversation may begin in the middle of another: its first prompt continues the last one there."""
    before = ModelCall(prompt=("a b", "c"), completion="d")
    after = [ModelCall(prompt=("a b", "c", "d", "e"), completion="f")]
    assert 3 + 2 * PER_PART == add_up(after, words, after=before).cacheable
    assert 0 == add_up(after, words).cacheable


def test_price_weighs_cached_and_completion_tokens() -> None:
    """A cached token costs a tenth of a fresh one, a completion token five."""
    assert 40 + 6 + 50 == pytest.approx(Cost(calls=1, prompt=100, cacheable=60, completion=10).price)


@given(st.lists(st.tuples(texts, st.text(max_size=5)), max_size=5))
def test_never_more_cacheable_than_sent(calls: list[tuple[list[str], str]]) -> None:
    """The cacheable part is part of the prompt, and the first call has none."""
    cost = add_up([ModelCall(prompt=tuple(prompt), completion=text) for prompt, text in calls], words)
    assert 0 <= cost.cacheable <= cost.prompt
    assert len(calls) > 1 or not cost.cacheable
