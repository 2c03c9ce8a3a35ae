"""What a team may use, and the account of what it has used. Pure: no clock, no lock, no waiting."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.team.errors import BudgetExceededError
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds

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
class Budget:
    """What all agents of a team may use together; None is no limit.

    Each model call reserves beforehand what it may cost at most, and is not made if that is not there any more.

    tokens: prompt and completion of all calls.
    cost: US dollars, at the prices of the agents' models.
    agents: at once; those that a fan-out makes count while they are there.
    depth: levels of agents; 1 is a lead without sub-agents.
    seconds: wall time, from the first task on.
    answer: tokens that are reserved for the answer of one call. A longer answer is cut off. None is 4096, or a tenth
        of the budget where that is less.
    """

    tokens: int | None = None
    cost: float | None = None
    agents: int | None = None
    depth: int | None = None
    seconds: float | None = None
    answer: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "cost", "agents", "depth"):
            limit = getattr(self, name)
            most = MAX_COST if name == "cost" else MAX_COUNT
            if limit is not None and not (isinstance(limit, int | float) and 0 <= limit <= most):
                raise UsageError(
                    f"a budget's {name} is a number from 0 on, or None for no limit, not {limit!r}; "
                    f"at most {most}"
                )
        check_seconds(self.seconds, "a budget's seconds")
        if self.answer is not None and not (isinstance(self.answer, int) and 1 <= self.answer <= MAX_COUNT):
            raise UsageError(
                f"a budget's answer is from one token to {MAX_COUNT}, or None, not {self.answer!r}"
            )

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


class Account:
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
