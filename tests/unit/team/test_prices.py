"""The price list that LiteLLM ships."""

from __future__ import annotations

import pytest

from cenote.models import TokenUsage
from cenote.models.prices import Price, list_price
from cenote_security.errors import UsageError


@pytest.mark.parametrize("name", ["gpt-4.1", "openai/gpt-4.1"])
def test_a_model_is_found_with_and_without_its_provider(name: str) -> None:
    """The list names most models without a provider, users name them with it."""
    assert Price(prompt=2.0, completion=8.0, cached=0.5) == list_price(name)


@pytest.mark.parametrize("name", ["scripted", "nobody/gpt-4.1", "", "openai/"])
def test_what_is_not_listed_has_no_price(name: str) -> None:
    """Another provider's model of the same name may have another price."""
    assert list_price(name) is None


def test_long_prompts_are_reckoned_at_the_highest_rate() -> None:
    """So that the budget holds for every prompt."""
    price = list_price("gemini/gemini-2.5-pro")
    assert price is not None
    assert (2.5, 15.0) == (price.prompt, price.completion)


def test_costs_are_rounded_up() -> None:
    """No call is free because it is small."""
    assert 1 == Price(prompt=0.0001, completion=0).nanodollars(TokenUsage(prompt=1))


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_a_price_that_makes_no_sense_is_refused(rate: float) -> None:
    """Otherwise it would hide what a call costs."""
    with pytest.raises(UsageError):
        Price(prompt=rate, completion=1)
