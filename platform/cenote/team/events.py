"""What happens in a team: events for listeners, and a record for a process that goes on with the work.

A place in the record names one task of one agent within a run: a step of a plan, the lead's task, a call by another
agent's code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from cenote.agent import AgentResponse, AgentRuntime
from cenote.agent.vocabulary.events import Event, EventType
from cenote.models import Model


@dataclass(frozen=True, slots=True)
class TeamEvent:
    """An agent's event, with its name. See `cenote.agent.Event` for types and contents."""

    agent: str
    type: EventType
    content: str


class Broadcast:
    """Passes events to every listener. Listeners are plain functions that must not block."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[TeamEvent], None]] = []

    def tell(self, agent: str, event: Event) -> None:
        """Passes an event on, except those that are only of use while they happen, and the account at a run's end."""
        if event.type.is_passing or event.type is EventType.STOPPED:
            return
        for listener in tuple(self._listeners):
            listener(TeamEvent(agent, event.type, event.content))

    @contextmanager
    def heard_by(self, listener: Callable[[TeamEvent], None]) -> Iterator[None]:
        """While the block lasts, `listener` hears everything."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


Do = Callable[[], Awaitable[None]]
Again = Callable[[], None]


class TeamRecord(Protocol):
    """Records what passes between an agent and its model and runtime. Used on one event loop."""

    def model(self, agent: str, model: Model) -> Model:
        """The model that the agent is to speak to instead."""

    def port(self, agent: str, port: AgentRuntime) -> AgentRuntime:
        """What the agent is to see of its runtime instead."""

    async def work(
        self, agent: str, place: str, task: str, carry_out: Callable[[str], Awaitable[AgentResponse]]
    ) -> AgentResponse:
        """What the agent makes of a task."""

    async def once(self, agent: str, place: str, what: str, do: Do, again: Again, rest: Do) -> None:
        """Does something to the agent's namespace, or `again` if it was done before and is still there; the `rest` if
        a part of it, or all, is there, since a process was killed before it could write it down.
        """

    def called(self, agent: str, number: int) -> str:
        """The place of a task that the agent's code gives to another agent. number: of its host call."""


class Unrecorded:
    """The TeamRecord of a team that ends with its process."""

    def model(self, agent: str, model: Model) -> Model:  # noqa: ARG002
        return model

    def port(self, agent: str, port: AgentRuntime) -> AgentRuntime:  # noqa: ARG002
        return port

    async def work(
        self,
        agent: str,  # noqa: ARG002
        place: str,  # noqa: ARG002
        task: str,
        carry_out: Callable[[str], Awaitable[AgentResponse]],
    ) -> AgentResponse:
        return await carry_out(task)

    async def once(
        self,
        agent: str,  # noqa: ARG002
        place: str,  # noqa: ARG002
        what: str,  # noqa: ARG002
        do: Do,
        again: Again,  # noqa: ARG002
        rest: Do,  # noqa: ARG002
    ) -> None:
        await do()

    def called(self, agent: str, number: int) -> str:
        return f"{agent}/{number}"
