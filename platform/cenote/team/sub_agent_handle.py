"""A member of a team as its parent's code sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cenote.agent import AgentResponse, SubAgent
from cenote.runtime import AsyncPythonRuntime
from cenote.runtime.host_desk import host_call
from cenote.team.errands import Errands

if TYPE_CHECKING:
    from cenote.team.member import Member


class SubAgentHandle(SubAgent):
    """Runs the member, and says so to the parent: a sub-agent does not work on when its parent has ended.

    errands: the parent's. called: gives the place of a task, by the number of the parent's host call.
    """

    def __init__(self, member: Member, errands: Errands, called: Callable[[int], str]) -> None:
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
