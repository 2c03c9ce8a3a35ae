"""The account of a team, shared by agents that work at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cenote.team.budget import NANO, Amount, Budget, BudgetAccount
from cenote.team.concurrency import AsyncCondition
from cenote.team.errors import BudgetExceededError


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left of a budget, reservations taken off; None where there is no limit. cost: US dollars."""

    tokens: int | None
    cost: float | None
    agents: int | None
    seconds: float | None


class BudgetLedger:
    """Grants and settles reservations, from any thread.

    A call that only waits for others to be settled waits; they hold what they have for one model call each, and no
    call waits for a second reservation while it has one, so that none waits for ever.
    """

    def __init__(
        self, budget: Budget, spent: Amount | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._budget = budget
        self._account = BudgetAccount(budget, spent)
        self._lock = threading.Lock()
        self._settled = AsyncCondition()
        self._clock = clock
        self._started: float | None = None

    @property
    def budget(self) -> Budget:
        return self._budget

    # -- model calls --

    async def reserve(self, amount: Amount) -> int:
        """A ticket for `settle`. Raises BudgetExceededError."""
        return await self._settled.until(lambda: self._reserved(amount))

    def settle(self, ticket: int, used: Amount) -> None:
        """What the call cost in the end."""
        with self._lock:
            self._account.settle(ticket, used)
        self._settled.ring()

    def _reserved(self, amount: Amount) -> int | None:
        self.check_time()
        with self._lock:
            return self._account.reserve(amount)

    # -- time --

    def start(self) -> None:
        """The team's time runs from its first start on."""
        with self._lock:
            if self._started is None:
                self._started = self._clock()

    def seconds_left(self) -> float | None:
        if self.budget.seconds is None:
            return None
        passed = 0.0 if self._started is None else self._clock() - self._started
        return max(self.budget.seconds - passed, 0.0)

    def check_time(self) -> None:
        """Raises BudgetExceededError when the time is over."""
        if self.seconds_left() == 0:
            raise BudgetExceededError("seconds")

    # -- agents --

    def hire(self) -> None:
        """One more agent. Raises BudgetExceededError."""
        with self._lock:
            self._account.hire()

    def retire(self) -> None:
        with self._lock:
            self._account.retire()

    def check_depth(self, levels: int) -> None:
        """Raises BudgetExceededError if the team may not have so many levels of agents."""
        self._account.check_depth(levels)

    # -- questions --

    @property
    def spent(self) -> Amount:
        """What settled calls have cost."""
        with self._lock:
            return self._account.spent

    @property
    def committed(self) -> Amount:
        """What settled calls have cost, and calls under way may."""
        with self._lock:
            return self._account.spent + self._account.reserved

    def remaining(self) -> Remaining:
        budget = self.budget
        with self._lock:
            taken, agents = self._account.spent + self._account.reserved, self._account.agents
        dollars = None if budget.cost is None else max(budget.cost - taken.nanodollars / NANO, 0.0)
        return Remaining(
            tokens=None if budget.tokens is None else max(budget.tokens - taken.tokens, 0),
            cost=dollars,
            agents=None if budget.agents is None else max(budget.agents - agents, 0),
            seconds=self.seconds_left(),
        )
