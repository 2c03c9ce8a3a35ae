"""What the code of an agent finds of its team in its namespace. Each public method is called from a jail."""

from __future__ import annotations

from dataclasses import asdict

from cenote.runtime.references import Sealed
from cenote.team.budget import NANO
from cenote.team.holdings import Holdings
from cenote.team.reader import Reader
from cenote.team.treasury import Treasury
from cenote.team.variables import TeamVariables
from cenote_security.errors import UsageError

BUDGET_HINT = "what the whole team may still use: budget.remaining() and budget.spent() give dicts"
TEAM_HINT = (
    "the team's variables: put(name, value), get(name), list(); "
    "await changed(name, after=1), preview(name), read(name, 0, 20), search(name, text)"
)


class BudgetHandle:
    """The team's budget, for reading. levels: of agents that there may be below this one; None for no limit."""

    def __init__(self, treasury: Treasury, levels: int | None) -> None:
        self._treasury = treasury
        self._levels = levels

    def remaining(self) -> dict[str, float | None]:
        """What is left: tokens, cost in US dollars, agents, seconds, depth; None where there is no limit."""
        return {**asdict(self._treasury.remaining()), "depth": self._levels}

    def spent(self) -> dict[str, float]:
        """What was used so far: tokens, cost in US dollars."""
        spent = self._treasury.spent
        return {"tokens": spent.tokens, "cost": spent.nanodollars / NANO}


class TeamHandle:
    """The team's variables, for one agent. Values pass sealed: this process opens none."""

    def __init__(self, agent: str, variables: TeamVariables, holdings: Holdings, reader: Reader) -> None:
        self._agent = agent
        self._variables = variables
        self._holdings = holdings
        self._reader = reader

    def put(self, name: str, value: Sealed) -> int:
        """Gives the team a new version of a variable; its number. `value` is anything, or a reference."""
        if not isinstance(value, Sealed):  # the jail called past its stub
            raise UsageError("a team variable is put as a value or a reference")
        version = self._variables.put(name, value.reference, author=self._agent)
        self._holdings.took(self._variables.get(name))
        return version

    def get(self, name: str) -> Sealed:
        """A copy of the newest version."""
        variable = self._variables.get(name)
        self._holdings.took(variable)
        return Sealed(variable.reference)

    def list(self) -> list[dict[str, object]]:
        """Name, version, author, type, shape, size and description of each variable."""
        return [
            {
                "name": variable.name,
                "version": variable.version,
                "author": variable.author,
                "type": variable.reference.type,
                "shape": variable.reference.shape,
                "size": variable.reference.size,
                "description": variable.reference.description,
            }
            for variable in self._variables.newest()
        ]

    async def changed(self, name: str, after: int = 0) -> int:
        """Waits for a version above `after`; gives its number."""
        return (await self._variables.changed(name, after)).version

    async def preview(self, name: str) -> str:
        """Type, shape, schema, and how the newest version begins and ends; nothing is copied here."""
        return await self._reader.preview(self._variables.get(name).reference)

    async def read(self, name: str, start: int = 0, stop: int = 20) -> str:
        """Rows, items, entries or characters of the newest version, as text."""
        return await self._reader.read(self._variables.get(name).reference, start, stop)

    async def search(self, name: str, text: str, most: int = 20) -> str:
        """Where the newest version holds a text."""
        return await self._reader.search(self._variables.get(name).reference, text, most)
