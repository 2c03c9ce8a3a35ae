"""What happens in a team, for whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cenote.agent.events import Event, EventType


@dataclass(frozen=True, slots=True)
class TeamEvent:
    """An agent's event, with its name. See `cenote.agent.Event` for types and contents."""

    agent: str
    type: EventType
    content: str


class Broadcast:
    """Tells every listener. Listeners are plain functions: they must not block."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[TeamEvent], None]] = []

    def tell(self, agent: str, event: Event) -> None:
        """What is only of use while it happens stays with the agent, as does the account at a run's end."""
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
