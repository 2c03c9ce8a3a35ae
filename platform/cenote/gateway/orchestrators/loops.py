"""Who does the work of each kind, in a process or an actor of its own."""

from __future__ import annotations

from typing import Protocol

from cenote.gateway.orchestrators.settings import OrchestratorSettings


class WorkLoop(Protocol):
    def work(self) -> None:
        """Until there is nothing more to do. Raises SupersededError, DatabaseUnavailableError."""

    def make_room(self) -> None:
        """Has `work` end soon, in the middle, if it can. From any thread."""


def loop_of(settings: OrchestratorSettings) -> WorkLoop:
    """Loads what a kind takes, and nothing of the others."""
    if settings.kind == "team":
        from cenote.gateway.teams.orchestrator import Orchestrator

        return Orchestrator(settings)
    from cenote.gateway.jobs.runner import JobRunner

    return JobRunner(settings)
