"""What an agent of a team is made from, as often as it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cenote.models import Model
from cenote.models.prices import Price, list_price
from cenote.runtime.injectables import Injectable, check_name
from cenote.team.budget import Budget
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything that `Team.add` was told. settings: for CaveAgent."""

    name: str
    model: Model | Callable[[], Model]
    description: str | None = None
    items: tuple[Injectable, ...] = ()
    sandbox: SandboxPolicy | None = None
    price: Price | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # CaveAgent checks them

    def __post_init__(self) -> None:
        check_name(self.name, "agent")
        if not isinstance(self.model, Model) and not callable(self.model):
            raise UsageError(
                f"an agent needs a model, such as LiteLLMModel(...), or a function that makes one, "
                f"not {type(self.model).__name__}"
            )

    def make_model(self) -> Model:
        return self.model if isinstance(self.model, Model) else self.model()

    def price_of(self, model: Model, budget: Budget) -> Price | None:
        """The price of its tokens. Raises UsageError where the budget limits cost and nobody knows it."""
        if budget.cost is None:
            return self.price
        price = self.price or list_price(model.model_id)
        if price is None:
            raise UsageError(
                f"the team's budget limits cost, and no price is known for {model.model_id!r}, the model of "
                f"{self.name!r}; pass price=Price(prompt=..., completion=...)"
            )
        return price
