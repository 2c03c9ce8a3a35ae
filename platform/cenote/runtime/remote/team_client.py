"""TeamService, as this process uses it. On the background loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.channels import DEADLINE, asked, authorization, meaning
from cenote.runtime.remote.platform_client import client_of
from cenote.runtime.remote.reconnection import RetrySchedule, say_waiting, without_waiting
from cenote.runtime.remote.references import Terms
from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, team_pb2
from cenote_proto.v1.team_pb2_grpc import TeamServiceStub
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.supervisor.frame_parser import read_info

if TYPE_CHECKING:
    from cenote_proto.v1.team_pb2_grpc import TeamServiceAsyncStub

Answer = TypeVar("Answer")

HOLDER: Final = "results of a team"


class TeamClient:
    """Of one platform. Calls raise what the gateway refuses with, and UnavailableError when it does not answer."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self.wait = destination.wait

    async def put(self, request: team_pb2.PutTeamRequest) -> team_pb2.TeamDescription:
        return await self._ask(self._stub().PutTeam(request, **self._terms()))

    async def get(self, name: str) -> team_pb2.TeamDescription:
        return await self._ask(self._stub().GetTeam(make(team_pb2.TeamName, name=name), **self._terms()))

    async def all(self) -> list[team_pb2.TeamDescription]:
        """All teams of this client's tenant."""
        found: list[team_pb2.TeamDescription] = []
        page = ""
        while True:
            reply = await self._ask(
                self._stub().ListTeams(make(team_pb2.ListTeamsRequest, page=page), **self._terms())
            )
            found.extend(reply.teams)
            if not (page := reply.next_page):
                return found

    async def delete(self, name: str) -> None:
        await self._ask(self._stub().DeleteTeam(make(team_pb2.TeamName, name=name), **self._terms()))

    async def start(self, request: team_pb2.StartRunRequest) -> team_pb2.TeamRun:
        return await self._ask(self._stub().StartRun(request, **self._terms()))

    async def run(self, name: team_pb2.RunName) -> team_pb2.TeamRun:
        return await self._ask(self._stub().GetRun(name, **self._terms()))

    async def cancel(self, name: team_pb2.RunName) -> team_pb2.TeamRun:
        return await self._ask(self._stub().CancelRun(name, **self._terms()))

    async def ended(self, name: team_pb2.RunName) -> team_pb2.TeamRun:
        """A run, once it is over. Retries for a while when no platform answers."""
        patience, loop = RetrySchedule(self._destination.wait), asyncio.get_running_loop()
        while True:
            try:
                with without_waiting():
                    run = await self.run(name)
                patience.stands(loop.time())
            except UnavailableError:
                await _pause(patience)
                continue
            if run.state not in (team_pb2.TeamRun.WAITING, team_pb2.TeamRun.RUNNING):
                return run
            name = make(team_pb2.RunName, team=name.team, number=run.number)
            await asyncio.sleep(LOOK_EVERY)

    async def follow(
        self, team: str, after: int, *, wait: bool, hear: Callable[[team_pb2.TeamNews], None]
    ) -> None:
        """Until there is no more to hear. Goes on where a broken line broke."""
        patience, loop = RetrySchedule(self._destination.wait), asyncio.get_running_loop()
        while True:
            request = make(team_pb2.FollowRequest, team=team, after=after, wait=wait)
            try:
                async for news in self._stub().FollowTeam(
                    request, metadata=authorization(self._destination.token)
                ):
                    patience.stands(loop.time())
                    hear(news)
                    after = news.number
                return
            except grpc.aio.AioRpcError as error:
                told = meaning(error, self._destination.address)
                if not isinstance(told, UnavailableError):
                    raise told from None
            await _pause(patience)

    async def past(self, team: str, after: int, limit: int) -> list[team_pb2.TeamNews]:
        """Up to so many past events, with calls of models."""
        request = make(team_pb2.FollowRequest, team=team, after=after, limit=limit, past=True, calls=True)
        call = self._stub().FollowTeam(request, **self._terms())
        try:
            return [news async for news in call]
        except grpc.aio.AioRpcError as error:
            raise meaning(error, self._destination.address) from None
        finally:
            call.cancel()

    def id_of(self, reference: ObjectReference) -> str:
        """Raises UsageError for a value that is not on this platform."""
        holding = reference.holding
        if holding.place != self._destination.address:
            raise UsageError(
                "a platform's team works with values of that platform: share one from a runtime of it"
            )
        return str(holding.id)

    async def hold(self, reference: str, info: jail_pb2.VariableInfo) -> ObjectReference:
        held = await client_of(self._destination).references.hold(reference, HOLDER)
        return ObjectReference(held, read_info(info))

    def _stub(self) -> TeamServiceAsyncStub:
        return TeamServiceStub(client_of(self._destination).channels.to(self._destination.address))

    def _terms(self) -> Terms:
        return Terms(metadata=authorization(self._destination.token), timeout=DEADLINE)

    async def _ask(self, call: Awaitable[Answer]) -> Answer:
        return await asked(call, self._destination)


LOOK_EVERY: Final = 0.2
"""Seconds between two looks whether a run is over."""


async def _pause(patience: RetrySchedule) -> None:
    """Raises UnavailableError when there is no patience left."""
    pause = patience.broke(asyncio.get_running_loop().time())
    if pause is None:
        raise UnavailableError("the platform does not answer any more; the team works on, ask again later")
    say_waiting("the platform", patience, "the team works on meanwhile, if it can")
    await asyncio.sleep(pause)
