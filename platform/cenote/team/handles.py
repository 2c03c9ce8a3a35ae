"""What the code of an agent finds of its team in its namespace: budget, variables, sub-agents.

Each public method is called from a jail. A sub-agent's work begins and ends within a run of its parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from cenote.agent import AgentBusyError, AgentResponse, SubAgent
from cenote.runtime import AsyncPythonRuntime
from cenote.runtime.inject.host_function_server import host_call
from cenote.runtime.inject.references import Sealed
from cenote.team.budget import NANO
from cenote.team.budget_ledger import BudgetLedger
from cenote.team.variables import ReferenceReader, SeenVersions, TeamVariables
from cenote_security.errors import UsageError

if TYPE_CHECKING:
    from cenote.team.member import Member


class ChildTasks:
    """The runs of sub-agents that a parent's code has started and that have not ended. Used on one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._open = False

    @asynccontextmanager
    async def allowed(self) -> AsyncGenerator[None, None]:
        """Allows tasks while the parent works. Those left at the end of the block are cancelled and awaited.

        A cell may end before the calls that it has started.

        Raises AgentBusyError inside another such block.
        """
        if self._open:
            raise AgentBusyError
        self._open = True
        try:
            yield
        finally:
            self._open = False
            await self._stop()

    @contextmanager
    def errand(self) -> Generator[None, None, None]:
        """Registers the current task. Raises UsageError for a call that the parent no longer waits for."""
        if not self._open:
            raise UsageError("a sub-agent works only while its parent works on a task")
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        self._tasks.add(current)
        try:
            yield
        finally:
            self._tasks.discard(current)

    async def _stop(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class SubAgentHandle(SubAgent):
    """Runs the member, and says so to the parent: a sub-agent does not work on when its parent has ended.

    errands: the parent's. called: gives the place of a task, by the number of the parent's host call.
    """

    def __init__(self, member: Member, errands: ChildTasks, called: Callable[[int], str]) -> None:
        self._member = member
        self._errands = errands
        self._called = called

    async def run(self, task: str) -> AgentResponse:
        with self._errands.errand():
            return await self._member.run(task, place=self._called(host_call()))

    @property
    def runtime(self) -> AsyncPythonRuntime:
        """The member's runtime: values go there from the parent's, and back, without passing here."""
        return self._member.runtime

    @property
    def variable_names(self) -> tuple[str, ...]:
        return self._member.variable_names


BUDGET_HINT = "what the whole team may still use: budget.remaining() and budget.spent() give dicts"
TEAM_HINT = (
    "the team's variables: put(name, value), get(name), list(); "
    "await changed(name, after=1), preview(name), read(name, 0, 20), search(name, text)"
)


class BudgetHandle:
    """The team's budget, for reading. levels: of agents that there may be below this one; None for no limit."""

    def __init__(self, treasury: BudgetLedger, levels: int | None) -> None:
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

    def __init__(
        self, agent: str, variables: TeamVariables, holdings: SeenVersions, reader: ReferenceReader
    ) -> None:
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
