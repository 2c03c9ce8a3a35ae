"""What a team may use, and the account of what it has used. Pure: no clock, no lock, no waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cenote.team.errors import BudgetExceededError
from cenote_security.errors import UsageError
from cenote_security.options import Options, option

MAX_COUNT = 2**53
MAX_COST = 2**33
"""What is kept of a budget is counted in whole tokens and billionths of a dollar, in 64 bits."""

NANO = 10**9
"""Nanodollars in a dollar: money is counted in whole numbers, which add up exactly."""


DEFAULT_ANSWER = 4096
"""Tokens of an answer that are reserved where the budget is large."""

MAX_SHARE = 0.1
"""Of a budget, what is reserved for one answer: with more, a small budget would end with most of it unspent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Options):
    """What all agents of a team may use together; None is no limit.

    Each model call reserves beforehand what it may cost at most, and is not made if that is not there any more.
    """

    whose: ClassVar[str] = "a budget's"

    tokens: int | None = option(
        None, help="prompt and completion of all calls", at_least=0, at_most=MAX_COUNT, none="no limit"
    )
    cost: float | None = option(
        None,
        help="US dollars, at the prices of the agents' models",
        at_least=0,
        at_most=MAX_COST,
        none="no limit",
    )
    agents: int | None = option(
        None,
        help="agents at once; those that a fan-out makes count while they are there",
        at_least=0,
        at_most=MAX_COUNT,
        none="no limit",
    )
    depth: int | None = option(
        None,
        help="levels of agents; 1 is a lead without sub-agents",
        at_least=0,
        at_most=MAX_COUNT,
        none="no limit",
    )
    seconds: float | None = option(
        None, help="wall time, from the first task on", unit="seconds", above=0, none="no limit"
    )
    answer: int | None = option(
        None,
        help="tokens that are reserved for the answer of one call; a longer answer is cut off",
        at_least=1,
        at_most=MAX_COUNT,
        none=f"{DEFAULT_ANSWER}, or a tenth of the budget where that is less",
    )

    def __post_init__(self) -> None:
        self.checked().raise_all()

    def reserve(self, token: int = 0) -> int:
        """Tokens that are reserved for an answer. token: what one of them costs at most, in nanodollars."""
        if self.answer is not None:
            return self.answer
        limits = [DEFAULT_ANSWER]
        if self.tokens is not None:
            limits.append(int(self.tokens * MAX_SHARE))
        if self.cost is not None and token:
            limits.append(int(self.cost * NANO * MAX_SHARE / token))
        return max(min(limits), 1)

    @property
    def is_limited(self) -> bool:
        return (self.tokens, self.cost, self.agents, self.depth, self.seconds) != (None,) * 5

    @property
    def counts_tokens(self) -> bool:
        """Whether a call has to be estimated before it is made."""
        return self.tokens is not None or self.cost is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What a call costs. nanodollars: of money."""

    tokens: int = 0
    nanodollars: int = 0

    def __post_init__(self) -> None:
        if min(self.tokens, self.nanodollars) < 0:
            raise UsageError(f"a cost is never negative: {self!r}")

    def __add__(self, other: Amount) -> Amount:
        return Amount(tokens=self.tokens + other.tokens, nanodollars=self.nanodollars + other.nanodollars)


class BudgetAccount:
    """The account of one team. What is reserved counts as spent until it is settled."""

    def __init__(self, budget: Budget, spent: Amount | None = None) -> None:
        self.budget = budget
        self.spent = spent or Amount()
        self.agents = 0
        self._reserved: dict[int, Amount] = {}
        self._tickets = 0

    @property
    def reserved(self) -> Amount:
        return sum(self._reserved.values(), Amount())

    def reserve(self, amount: Amount) -> int | None:
        """A ticket for `settle`; None while only what others have reserved stands in the way.

        Raises BudgetExceededError if not even their calls' costing nothing would make room.
        """
        self._check(amount, self.spent)
        try:
            self._check(amount, self.spent + self.reserved)
        except BudgetExceededError:
            return None
        self._tickets += 1
        self._reserved[self._tickets] = amount
        return self._tickets

    def settle(self, ticket: int, used: Amount) -> None:
        """What the call cost in the end, once for each ticket. More than was reserved is booked in full."""
        del self._reserved[ticket]
        self.spent += used

    def hire(self) -> None:
        """One more agent. Raises BudgetExceededError."""
        _check("agents", self.budget.agents, 1, self.agents)
        self.agents += 1

    def retire(self) -> None:
        self.agents -= 1

    def check_depth(self, levels: int) -> None:
        """Raises BudgetExceededError if the team may not have so many levels of agents."""
        _check("depth", self.budget.depth, levels, 0)

    def _check(self, amount: Amount, taken: Amount) -> None:
        _check("tokens", self.budget.tokens, amount.tokens, taken.tokens)
        limit = None if self.budget.cost is None else int(self.budget.cost * NANO)
        _check("cost", limit, amount.nanodollars, taken.nanodollars, unit=NANO)


def _check(resource: str, limit: int | None, needed: int, taken: int, *, unit: int = 1) -> None:
    if limit is not None and taken + needed > limit:
        raise BudgetExceededError(resource, needed / unit, max(limit - taken, 0) / unit)
