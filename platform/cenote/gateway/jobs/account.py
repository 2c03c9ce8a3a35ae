"""What the agents of a job may spend together; what each call came to is written down before the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from cenote.gateway.jobs.definition import check_budget
from cenote.gateway.jobs.ledger import JobLedger
from cenote.gateway.teams.building import model_of
from cenote.models import Model
from cenote.models.prices import list_price
from cenote.team.budget import Amount, Budget
from cenote.team.metered_model import Meter, MeteredModel
from cenote.team.treasury import Treasury
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_security.errors import UsageError


class JobAccount:
    """Of one job, in one process."""

    def __init__(
        self, ledger: JobLedger, definition: job_pb2.JobDefinition, secrets: Mapping[str, str]
    ) -> None:
        self._ledger = ledger
        self._definition = definition
        self._secrets = secrets
        tokens, nanodollars = ledger.spent()
        budget = ledger.row.budget
        message = team_pb2.TeamBudget.FromString(budget) if budget else definition.budget
        self._treasury = Treasury(check_budget(message), Amount(tokens=tokens, nanodollars=nanodollars))

    def model(self, position: int) -> Model:
        """For the agent of one task. Raises UsageError where cost is limited and nobody knows the price."""
        message = self._definition.model
        model = model_of(message, self._secrets, 0)
        price = list_price(model.model_id)
        if price is None and self._treasury.budget.cost is not None:
            raise UsageError(
                f"the job's budget limits cost, and no price is known for {model.model_id!r}; limit tokens instead"
            )
        purse = _Purse(self._treasury, partial(self._ledger.spend, position))
        return MeteredModel(model, purse, Meter(), price)


class _Purse:
    """See Payer: the treasury, of which one task takes."""

    def __init__(self, treasury: Treasury, book: Callable[[int, int], None]) -> None:
        self._treasury = treasury
        self._book = book

    @property
    def budget(self) -> Budget:
        return self._treasury.budget

    async def reserve(self, amount: Amount) -> int:
        return await self._treasury.reserve(amount)

    def settle(self, ticket: int, used: Amount) -> None:
        self._treasury.settle(ticket, used)
        self._book(used.tokens, used.nanodollars)
