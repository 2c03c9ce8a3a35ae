"""A member of a team as its parent's code sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cenote.agent import AgentResponse, SubAgent
from cenote.runtime import AsyncPythonRuntime

if TYPE_CHECKING:
    from cenote.team.member import Member


class SubAgentHandle(SubAgent):
    """Runs the member, and says so to the parent: a sub-agent does not work on when its parent has ended.

    at_work: the parent's set of tasks in which its sub-agents work for it.
    """

    def __init__(self, member: Member, at_work: set[asyncio.Task[object]]) -> None:
        self._member = member
        self._at_work = at_work

    async def run(self, task: str) -> AgentResponse:
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        self._at_work.add(current)
        try:
            return await self._member.run(task)
        finally:
            self._at_work.discard(current)

    @property
    def runtime(self) -> AsyncPythonRuntime:
        """The member's runtime: values go there from the parent's, and back, without passing here."""
        return self._member.runtime

    @property
    def variable_names(self) -> tuple[str, ...]:
        return self._member.variable_names
