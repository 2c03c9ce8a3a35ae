"""What a platform tells of a team: what has happened, what came of a run, how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cenote.runtime.references import ObjectReference
from cenote_proto.v1 import team_pb2
from cenote_security.errors import CenoteError

RunState = Literal["waiting", "running", "done", "failed", "cancelled"]

_STATES: Final[tuple[RunState, ...]] = ("waiting", "running", "done", "failed", "cancelled")
"""In the order of their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamNews:
    """Something that happened in a team. number: to follow it from there.

    agent, type, content: as of a TeamEvent; without an agent it happened to the run, and the type is `started`,
    `resumed`, `restarted`, `done`, `failed` or `cancelled`. at: seconds since the epoch.
    """

    number: int
    at: float
    run: int
    agent: str
    type: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRun:
    """What a team was set to do. answer: the last words; status: how a lead came to them, as of an AgentResponse.

    references: what the steps of a plan gave; the platform keeps it for an hour. error: why it failed.
    """

    number: int
    state: RunState
    answer: str = ""
    status: str = ""
    references: tuple[ObjectReference, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus:
    """A step of the plan that is worked on, or was last."""

    agent: str
    task: str
    status: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamStatus:
    """runs: newest first. tokens, cost: of all of them, in US dollars. newest: number of the last news.

    starts: processes that have worked on it; more than one run needs when they were killed.
    """

    id: str
    name: str
    members: tuple[str, ...]
    runs: tuple[TeamRun, ...]
    steps: tuple[StepStatus, ...]
    tokens: int
    cost: float
    newest: int
    starts: int


class TeamRunError(CenoteError):
    """A run of a platform's team did not come to a good end. run: as it is."""

    def __init__(self, run: TeamRun) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        ended = "failed" if self.run.state == "failed" else f"was {self.run.state}"
        return f"run {self.run.number} of the team {ended}" + (
            f": {self.run.error}" if self.run.error else ""
        )


def news_of(message: team_pb2.TeamNews) -> TeamNews:
    return TeamNews(
        number=message.number,
        at=message.at,
        run=message.run,
        agent=message.agent,
        type=message.type,
        content=message.content,
    )


def run_of(message: team_pb2.TeamRun, references: tuple[ObjectReference, ...] = ()) -> TeamRun:
    """references: to what its steps gave, held for this client."""
    return TeamRun(
        number=message.number,
        state=_STATES[message.state] if message.state < len(_STATES) else "failed",
        answer=message.answer,
        status=message.status,
        references=references,
        error=message.error,
    )


def status_of(message: team_pb2.TeamDescription) -> TeamStatus:
    """A team as the platform describes it."""
    return TeamStatus(
        id=message.id,
        name=message.name,
        members=tuple(member.name for member in message.definition.members),
        runs=tuple(map(run_of, message.runs)),
        steps=tuple(
            StepStatus(agent=step.agent, task=step.task, status=step.status, error=step.error)
            for step in message.steps
        ),
        tokens=message.tokens,
        cost=message.nanodollars / 10**9,
        newest=message.newest_news,
        starts=message.starts,
    )
