"""A client that follows a team's events: until its token is revoked, or the team is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from cenote.gateway.store.database import Database
from cenote.gateway.teams.service import TeamService
from cenote.gateway.teams.tables import StoredTeamEvent, TeamEventTable, TeamRow, TeamRunTable, TeamTable
from cenote_proto.v1 import team_pb2
from cenote_security.errors import NotAuthenticatedError, UnknownEntryError

WAITING = team_pb2.FollowRequest(wait=True)


class Callers:
    async def on_thread(self, work: Callable[[], Any]) -> Any:
        return work()


@pytest.fixture
def service(database: Database) -> TeamService:
    stores = SimpleNamespace(
        team_runs=TeamRunTable(database), team_news=TeamEventTable(database), teams=TeamTable(database)
    )
    return TeamService(stores, None, Callers())  # type: ignore[arg-type]


async def good() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def revoked() -> NoReturn:
    raise NotAuthenticatedError("it was revoked")


async def first(service: TeamService, team: TeamRow, token: Callable[[], Any]) -> StoredTeamEvent:
    barred = asyncio.create_task(token())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        return await anext(service._news(team.id, WAITING, barred))  # type: ignore[call-overload]


async def test_a_token_that_was_revoked(service: TeamService, database: Database, team: TeamRow) -> None:
    """Though there are no events, and before there are more."""
    with pytest.raises(NotAuthenticatedError):
        await first(service, team, revoked)
    TeamEventTable(database).add(
        team.id, StoredTeamEvent(number=1, at=1.0, run=1, agent="a", place="", kind="text", content="said")
    )
    assert "said" == (await first(service, team, good)).content
    with pytest.raises(NotAuthenticatedError):
        await first(service, team, revoked)


async def test_a_team_that_was_deleted(service: TeamService, database: Database, team: TeamRow) -> None:
    """There will be no more events of it."""
    TeamTable(database).remove(team.tenant, team.id)
    with pytest.raises(UnknownEntryError):
        await first(service, team, good)
