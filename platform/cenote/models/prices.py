"""What a model's tokens cost, offline, from the price list that LiteLLM ships, without importing LiteLLM."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from cenote.models.messages import TokenUsage
from cenote_security.errors import UsageError

_LIST = "model_prices_and_context_window_backup.json"
_TIER = re.compile(r"_above_\d+k_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens. cached: for prompt tokens that the server had cached; None: as the others."""

    prompt: float
    completion: float
    cached: float | None = None

    def __post_init__(self) -> None:
        if not all(0 <= rate < 1e6 for rate in (self.prompt, self.completion, self.cached or 0)):
            raise UsageError(f"a price is dollars per million tokens, not {self!r}")

    def nanodollars(self, usage: TokenUsage) -> int:
        """What the usage costs, rounded up: whole numbers add up exactly, in any order."""
        cached = self.prompt if self.cached is None else self.cached
        microdollars = (
            (usage.prompt - usage.cached) * self.prompt
            + usage.cached * cached
            + usage.completion * self.completion
        )
        return ceil(microdollars * 1000)


def list_price(model_id: str) -> Price | None:
    """The listed price of a model such as `gpt-5` or `anthropic/claude-sonnet-4-5`; None if it is not listed.

    Of models that charge more for long prompts, the highest rate.
    """
    prices = _listed()
    provider, _, name = model_id.rpartition("/")
    entry = prices.get(model_id)
    if entry is None and provider and (named := prices.get(name)) is not None:
        entry = named if named.get("litellm_provider") == provider else None
    return None if entry is None else _price(entry)


def _price(entry: Mapping[str, object]) -> Price | None:
    prompt, completion = _rate(entry, "input_cost_per_token"), _rate(entry, "output_cost_per_token")
    if prompt is None or completion is None:
        return None
    return Price(prompt=prompt, completion=completion, cached=_rate(entry, "cache_read_input_token_cost"))


def _rate(entry: Mapping[str, object], name: str) -> float | None:
    """Dollars per million tokens."""
    rates = [
        float(rate)
        for key, rate in entry.items()
        if isinstance(rate, int | float) and key.startswith(name) and _is_tier(key.removeprefix(name))
    ]
    return max(rates) * 1e6 if rates else None


def _is_tier(suffix: str) -> bool:
    return suffix == "" or _TIER.fullmatch(suffix) is not None


@cache
def _listed() -> Mapping[str, Mapping[str, object]]:
    spec = importlib.util.find_spec("litellm")  # locates the package without importing it
    path = Path(spec.origin).with_name(_LIST) if spec is not None and spec.origin is not None else None
    if path is None or not path.is_file():
        return {}
    listed = json.loads(path.read_text(encoding="utf-8"))
    return {name: entry for name, entry in listed.items() if isinstance(entry, dict)}
