"""One run of a team while the database is unavailable: nothing is decided or lost, and other processes continue."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from tests.waiting import until_async

from cenote.agent.vocabulary.events import EventType
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.store.database import Database
from cenote.gateway.teams.ledger import TeamLedger
from cenote.gateway.teams.orchestrator import _OneRun
from cenote.gateway.teams.tables import StoredTeamEvent, TeamEventTable, TeamRow, TeamRunTable
from cenote.gateway.work.workload import SupersededError
from cenote.team import TeamState
from cenote_proto.v1 import team_pb2

AWAY = DatabaseUnavailableError("here", "it is away")


class Alone:
    """Replaces an Orchestrator, without runtimes and values."""

    def definition(self, stored: bytes) -> team_pb2.TeamDefinition:
        return team_pb2.TeamDefinition.FromString(stored)

    def references(self) -> Any:
        return None


class Runtimes:
    def __init__(self) -> None:
        self.deleted = False

    def delete(self) -> None:
        self.deleted = True


class Members:
    """Replaces a Team."""

    state = TeamState(team="team")

    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def team(database: Database, team: TeamRow) -> TeamRow:
    """A team with a run."""
    TeamRunTable(database).add(team.id, b"", "")
    return team


@pytest.fixture
def run(database: Database, team: TeamRow) -> _OneRun:
    ledger = TeamLedger(database, team.id)
    ledger.begin_run(1)
    (row,) = TeamRunTable(database).open(team.id)
    return _OneRun(Alone(), ledger, row)  # type: ignore[arg-type]


def away_once(monkeypatch: pytest.MonkeyPatch, where: type, name: str, error: Exception) -> None:
    works, asked = getattr(where, name), []

    def away(*given: Any, **more: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            raise error
        return works(*given, **more)

    monkeypatch.setattr(where, name, away)


def text(content: str) -> StoredTeamEvent:
    return StoredTeamEvent(
        number=0, at=1.0, run=1, agent="a", place="p", kind=EventType.TEXT.value, content=content
    )


def test_a_wish_to_cancel_is_heard_behind_it(
    database: Database, team: TeamRow, run: _OneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll for cancellation continues: a model may think for minutes, in which nothing else polls."""

    async def endless() -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(run, "_work", endless)
    away_once(monkeypatch, TeamLedger, "is_cancelled", AWAY)
    TeamRunTable(database).cancel(team.id, 1)
    asyncio.run(asyncio.wait_for(run.carry_out(), 60))
    assert "cancelled" == TeamRunTable(database).get(team.id, 1).state


def test_what_a_model_says_is_told_behind_it(
    database: Database, team: TeamRow, run: _OneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, and all of it."""

    async def says() -> Any:
        run._teller._gather(text("said"))
        await until_async(lambda: TeamEventTable(database).kept(team.id)[1] > 1)
        return team_pb2.TeamRun()

    monkeypatch.setattr(run, "_work", says)
    away_once(monkeypatch, TeamLedger, "tell", AWAY)
    asyncio.run(run.carry_out())
    rows = database.rows("SELECT content FROM team_news WHERE kind = 'text'")
    assert ["said"] == [row["content"] for row in rows]


def test_a_run_does_not_fail_over_it(
    database: Database, team: TeamRow, run: _OneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon the database is back: the next process that works on the team continues the run."""

    async def notes() -> Any:
        raise AWAY

    monkeypatch.setattr(run, "_work", notes)
    with pytest.raises(DatabaseUnavailableError):
        asyncio.run(run.carry_out())
    assert "running" == TeamRunTable(database).get(team.id, 1).state


@pytest.mark.parametrize(
    ("failure", "unsaved", "deleted"),
    [
        (None, None, True),
        (ValueError("no"), None, True),
        (AWAY, None, False),
        (ValueError("no"), SupersededError(), False),
    ],
)
def test_who_goes_on_finds_the_runtimes(
    run: _OneRun,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
    unsaved: Exception | None,
    deleted: bool,
) -> None:
    """They are ended after a run that has ended, and this process has released them after any run."""
    if unsaved is not None:
        away_once(monkeypatch, TeamLedger, "save_state", unsaved)
    members, runtimes = Members(), Runtimes()

    async def carry_out() -> None:
        async with run._ending(members, runtimes):  # type: ignore[arg-type]
            if failure is not None:
                raise failure

    raised = unsaved or failure
    with pytest.raises(type(raised)) if raised is not None else nullcontext():
        asyncio.run(carry_out())
    assert (True, deleted) == (members.closed, runtimes.deleted)
