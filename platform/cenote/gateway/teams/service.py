"""TeamService: a tenant's teams, by name."""

from __future__ import annotations

import asyncio
import math
from asyncio import Task
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, NoReturn, TypeVar

from cenote.gateway.api.calls import Context, GatewayCalls
from cenote.gateway.store.stores import Stores
from cenote.gateway.teams.registry import TeamRegistry, described_run
from cenote.gateway.teams.tables import MODEL_CALL, RunRow, StoredTeamEvent
from cenote.gateway.values.principal import Principal
from cenote_proto.scalars import make
from cenote_proto.v1 import team_pb2
from cenote_proto.v1.team_pb2_grpc import TeamServiceServicer
from cenote_security.ids import TeamId

T = TypeVar("T")

LOOK_EVERY: Final = 0.1
"""Seconds between two queries for new events; each takes some ten microseconds."""


class TeamService(TeamServiceServicer):
    """Runs on the gateway's loop; blocking calls run on threads."""

    def __init__(self, stores: Stores, registry: TeamRegistry, callers: GatewayCalls) -> None:
        self._stores = stores
        self._registry = registry
        self._callers = callers

    async def PutTeam(self, request: team_pb2.PutTeamRequest, context: Context) -> team_pb2.TeamDescription:
        def put(principal: Principal) -> team_pb2.TeamDescription:
            return self._registry.described(self._registry.put(principal, request))

        return await self._answer(context, "team.put", put)

    async def GetTeam(self, request: team_pb2.TeamName, context: Context) -> team_pb2.TeamDescription:
        def get(principal: Principal) -> team_pb2.TeamDescription:
            return self._registry.described(self._registry.find(principal, request.name))

        return await self._answer(context, "team.get", get)

    async def ListTeams(
        self, request: team_pb2.ListTeamsRequest, context: Context
    ) -> team_pb2.ListTeamsReply:
        def page(principal: Principal) -> team_pb2.ListTeamsReply:
            found, after = self._registry.page(principal, request.page, request.limit)
            return make(team_pb2.ListTeamsReply, teams=map(self._registry.described, found), next_page=after)

        return await self._answer(context, "team.list", page)

    async def DeleteTeam(self, request: team_pb2.TeamName, context: Context) -> team_pb2.DeleteTeamReply:
        def delete(principal: Principal) -> team_pb2.DeleteTeamReply:
            self._registry.delete(principal, request.name)
            return team_pb2.DeleteTeamReply()

        return await self._answer(context, "team.delete", delete)

    async def StartRun(self, request: team_pb2.StartRunRequest, context: Context) -> team_pb2.TeamRun:
        return await self._run(context, "team.run", lambda who: self._registry.start(who, request))

    async def GetRun(self, request: team_pb2.RunName, context: Context) -> team_pb2.TeamRun:
        return await self._run(context, "team.get", lambda who: self._registry.run(who, request))

    async def CancelRun(self, request: team_pb2.RunName, context: Context) -> team_pb2.TeamRun:
        return await self._run(context, "team.cancel", lambda who: self._registry.cancel(who, request))

    async def FollowTeam(self, request: team_pb2.FollowRequest, context: Context) -> None:  # type: ignore[override]
        async with self._callers.served(context, "team.follow") as principal:
            team = await self._callers.on_thread(lambda: self._registry.find(principal, request.team))
            barred = asyncio.create_task(self._callers.barred(context))
            try:
                async for news in self._news(team.id, request, barred):
                    await context.write(_told(news))
            finally:
                barred.cancel()

    async def _news(
        self, team: TeamId, request: team_pb2.FollowRequest, barred: Task[NoReturn]
    ) -> AsyncIterator[StoredTeamEvent]:
        """barred: see GatewayCalls. It is checked also while no events come."""
        heard, left = request.after, request.limit or math.inf
        while True:
            if barred.done():
                await barred
            # The order matters: the last events of a run are written in one transaction with its end.
            at_work = await self._callers.on_thread(lambda: self._stores.team_runs.open(team))
            page = await self._callers.on_thread(partial(self._stores.team_news.after, team, heard))
            for news in page:
                if barred.done():  # the reader may have been slow
                    await barred
                heard = news.number
                if news.kind == MODEL_CALL and not request.calls:
                    continue
                yield news
                left -= 1
                if left <= 0:
                    return
            if not page:
                if request.past or not (at_work or request.wait):
                    return
                if not at_work:  # it may have been deleted, which is not an event
                    await self._callers.on_thread(partial(self._stores.teams.of_all, team))
                await asyncio.sleep(LOOK_EVERY)

    async def _run(
        self, context: Context, action: str, work: Callable[[Principal], RunRow]
    ) -> team_pb2.TeamRun:
        def told(principal: Principal) -> team_pb2.TeamRun:
            run = work(principal)
            return described_run(self._stores.teams.find(principal.tenant, run.team), run)

        return await self._answer(context, action, told)

    async def _answer(self, context: Context, action: str, work: Callable[[Principal], T]) -> T:
        async with self._callers.served(context, action) as principal:
            answered: Awaitable[T] = self._callers.on_thread(lambda: work(principal))
            return await answered
        raise AssertionError("a call that failed was ended")


def _told(news: StoredTeamEvent) -> team_pb2.TeamNews:
    return make(
        team_pb2.TeamNews,
        number=news.number,
        at=news.at,
        run=news.run,
        agent=news.agent,
        type=news.kind,
        content=news.content,
    )
