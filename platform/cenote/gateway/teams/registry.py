"""A tenant's teams from creation to deletion: orders the changes to names, quotas, secrets, runs and notes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from cenote.gateway.api.runtime_registry import RuntimeRegistry, page
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.teams.definition import check_definition, check_work
from cenote.gateway.teams.runtimes import names_of
from cenote.gateway.teams.tables import RunRow, TeamRow
from cenote.gateway.values.bounds import TenantBounds
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Hold, Quota
from cenote.gateway.work.processes import Orchestrators
from cenote.gateway.work.registry import END_PATIENCE, WorkRegistry
from cenote.gateway.work.settings import taken_out
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import team_pb2
from cenote_security.auth.tokens import Scope
from cenote_security.errors import (
    RejectedError,
    UnavailableError,
    UnknownEntryError,
    UsageError,
)
from cenote_security.ids import TeamId, TenantId

MAX_KEY: Final = 200
MAX_PAGE: Final = 100
SHOWN: Final = 20
"""Runs that the description of a team contains."""

MAX_WAITING: Final = 100
"""Runs of one team that are not over."""


class TeamRegistry(WorkRegistry[TeamId]):
    """Calls block, from any thread. The caller is a Principal; its scopes are checked first.

    runtimes: of all tenants. endpoints: base URLs that models of tenants may use. bounds: what tenants may ask for.
    """

    def __init__(
        self,
        stores: Stores,
        state: StateFolder,
        runtimes: RuntimeRegistry,
        orchestrators: Orchestrators | None,
        endpoints: Collection[str] = (),
        bounds: TenantBounds | None = None,
    ) -> None:
        super().__init__(stores, state.teams)
        self._runtimes = runtimes
        self._orchestrators = orchestrators
        self._endpoints = tuple(endpoints)
        self._bounds = bounds or TenantBounds()

    def put(self, principal: Principal, request: team_pb2.PutTeamRequest) -> TeamRow:
        """Creates or changes a team. Raises QuotaExceededError and RejectedError; UsageError."""
        principal.require(Scope.TEAMS)
        if request.name.startswith("tm_"):
            raise UsageError("names that begin with 'tm_' are given by the platform; choose another")
        try:
            team = self._stores.teams.find(principal.tenant, request.name)
        except UnknownEntryError:
            return self._make(principal, request)
        keys = self._keys(team.id)
        secrets = {**keys.secrets(), **request.secrets}
        definition = team_pb2.TeamDefinition.FromString(_stored(request.definition))
        credentials = taken_out(definition)
        unchanged = _stored(definition) == team.definition
        if unchanged and (secrets, credentials) == (keys.secrets(), keys.credentials()):
            return team
        if self._stores.team_runs.open(team.id):
            raise RejectedError(f"team {team.name!r} is at work; change it when that is done, or cancel it")
        self._check(principal, request.definition, secrets)
        self._record(principal, "team.change")
        keys.keep(secrets, credentials)
        self._stores.teams.define(principal.tenant, team.id, _stored(definition))
        return self._stores.teams.find(principal.tenant, team.id)

    def find(self, principal: Principal, name: str) -> TeamRow:
        """By name or id. Raises UnknownEntryError."""
        principal.require(Scope.TEAMS)
        return self._stores.teams.find(principal.tenant, name)

    def page(self, principal: Principal, after: str, limit: int) -> tuple[Sequence[TeamRow], str]:
        """One page of the tenant's teams by name, and where the next page begins (empty at the end)."""
        principal.require(Scope.TEAMS)
        entries = self._stores.teams
        return page(lambda most: entries.of(principal.tenant, after=after, limit=most), limit, MAX_PAGE)

    def delete(self, principal: Principal, name: str) -> None:
        """Ends the team's work. Raises UnknownEntryError."""
        team = self.find(principal, name)
        self._record(principal, "team.delete")
        self._end(principal.tenant, team.id)

    def sweep(self) -> None:
        """Retries clearing deleted teams."""
        for team, tenant in list(self._remains.items()):
            self._end(tenant, team)

    def clear_remains(self) -> None:
        """At the start: clears teams that were being deleted or made when a gateway was killed."""
        self._clear_orphans(self._stores.teams.ids)

    def _end(self, tenant: TenantId, team: TeamId) -> None:
        """Removes the row first, so that no client sees the team any more. `sweep` retries what fails."""
        try:
            self._stores.teams.remove(tenant, team)
            self._clear(tenant, team)
        except BaseException:
            self._remains[team] = tenant
            raise
        self._remains.pop(team, None)

    def _clear(self, tenant: TenantId, team: TeamId) -> None:
        """Removes all of a team except its row."""
        if self._orchestrators is not None:
            self._orchestrators.settle(team, END_PATIENCE)
        # If a team's process was killed, no other process ends its runtimes.
        self._runtimes.delete_all_of(tenant, names_of(team), "its team was deleted")
        keys = self._keys(team)
        self._forget_token(tenant, keys)
        keys.remove()
        self._stores.quotas.release(team)

    def start(self, principal: Principal, request: team_pb2.StartRunRequest) -> RunRow:
        """Raises UnknownEntryError, UsageError, RejectedError; UnavailableError where the platform runs no teams."""
        team = self.find(principal, request.team)
        if self._orchestrators is None:
            raise UnavailableError("this gateway works on no teams")
        if len(request.key) > MAX_KEY:
            raise UsageError(f"a key has at most {MAX_KEY} characters")
        check_work(request, team_pb2.TeamDefinition.FromString(team.definition))
        if len(self._stores.team_runs.open(team.id)) >= MAX_WAITING:
            raise RejectedError(
                f"team {team.name!r} has {MAX_WAITING} runs to do already; wait, or cancel some"
            )
        self._record(principal, "team.run")
        run = self._stores.team_runs.add(team.id, request.SerializeToString(), request.key)
        self._orchestrators.ensure(team.id)
        return run

    def run(self, principal: Principal, name: team_pb2.RunName) -> RunRow:
        """Raises UnknownEntryError."""
        return self._stores.team_runs.get(self.find(principal, name.team).id, name.number)

    def cancel(self, principal: Principal, name: team_pb2.RunName) -> RunRow:
        """Raises UnknownEntryError."""
        run = self.run(principal, name)
        self._record(principal, "team.cancel")
        self._stores.team_runs.cancel(run.team, run.number)
        return self._stores.team_runs.get(run.team, run.number)

    def described(self, team: TeamRow) -> team_pb2.TeamDescription:
        state = json.loads(team.state) if team.state else {}
        first, newest = self._stores.team_news.kept(team.id)
        described = make(
            team_pb2.TeamDescription,
            id=team.id,
            name=team.name,
            definition=team_pb2.TeamDefinition.FromString(team.definition),
            created=team.created,
            runs=[described_run(team, run) for run in self._stores.team_runs.of(team.id, SHOWN)],
            first_news=first,
            newest_news=newest,
            tokens=state.get("tokens", 0),
            nanodollars=state.get("nanodollars", 0),
            starts=team.epoch,
        )
        for step in state.get("steps", ()):
            told = {name: step[name] for name in ("key", "agent", "task", "status", "error", "inputs")}
            added = make(described.steps.add, **told)
            if (output := step["output"]) is not None:
                added.output.CopyFrom(_value(output))
        for variable in state.get("variables", ()):
            named = {name: variable[name] for name in ("name", "version", "author")}
            make(described.variables.add, **named, value=_value(variable["reference"]))
        return described

    def _make(self, principal: Principal, request: team_pb2.PutTeamRequest) -> TeamRow:
        self._check(principal, request.definition, request.secrets)
        credentials = taken_out(request.definition)
        team = self._stores.teams.add(principal.tenant, request.name, _stored(request.definition))
        try:
            hold = Hold(key=team.id, tenant=principal.tenant, amounts={Quota.TEAMS: 1}, lasting=True)
            self._stores.reserve(hold)
            self._record(principal, "team.make")
            keys = self._keys(team.id)
            keys.make(self._issued(principal, f"of team {team.name}"))
            keys.keep(request.secrets, credentials)
        except BaseException:
            self._end(principal.tenant, team.id)
            raise
        return team

    def _check(
        self, principal: Principal, definition: team_pb2.TeamDefinition, secrets: Mapping[str, str]
    ) -> None:
        check_definition(
            definition, secrets, endpoints=self._endpoints, bounds=self._bounds, tenant=principal.tenant
        )


def _value(reference: Mapping[str, Any]) -> team_pb2.TeamValue:
    names = ("id", "type", "size", "description")
    return make(
        team_pb2.TeamValue, **{name: reference[name] for name in names}, shape=reference["shape"] or ()
    )


def described_run(team: TeamRow, run: RunRow) -> team_pb2.TeamRun:
    told = team_pb2.TeamRun.FromString(run.outcome)
    request = team_pb2.StartRunRequest.FromString(run.work)
    told.team, told.number, told.task, told.error = (
        utf8_text(team.name),
        run.number,
        utf8_text(request.task),
        utf8_text(run.error),
    )
    told.state = team_pb2.TeamRun.State.Value(run.state.upper())
    told.created, told.started, told.ended = run.created, run.started, run.ended
    return told


def _stored(definition: team_pb2.TeamDefinition) -> bytes:
    return definition.SerializeToString(deterministic=True)
