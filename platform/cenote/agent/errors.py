"""Errors of agents."""

from __future__ import annotations

from cenote_security.errors import UsageError


class AgentBusyError(UsageError):
    """The agent is in the middle of a task. Nothing ran."""

    def __str__(self) -> str:
        return (
            "this agent is working on a task; wait for it, or use an agent for each of the tasks. Events left by a "
            "`break` go on until they are closed: async with contextlib.aclosing(agent.stream_events(...)) as events"
        )
