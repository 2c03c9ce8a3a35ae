"""The database fails while a team is created or deleted: nothing is left that no client could remove."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.gateway.world import World

from cenote.gateway.api.runtime_registry import RuntimeRegistry
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.reader import EntrySelection, selected
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.teams import registry as registry_module
from cenote.gateway.teams.registry import TeamRegistry
from cenote.gateway.values.quota import Quota
from cenote_proto.v1 import team_pb2


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(registry_module, "check_definition", lambda *_given, **_more: None)
    world = World(tmp_path)
    yield world
    world.close()


def away_once(monkeypatch: pytest.MonkeyPatch, store: object, name: str) -> None:
    works = getattr(store, name)

    def away(*_given: object, **_more: object) -> None:
        monkeypatch.setattr(store, name, works)
        raise DatabaseUnavailableError("here", "it is away")

    monkeypatch.setattr(store, name, away)


@pytest.mark.parametrize(
    ("first", "second"), [("reserve", "remove"), ("reserve", "release"), ("issue", "remove")]
)
def test_one_that_is_made(world: World, monkeypatch: pytest.MonkeyPatch, first: str, second: str) -> None:
    """It can be created again, and uses its quotas once."""
    stores = world.stores
    teams = TeamRegistry(stores, world.state, RuntimeRegistry(stores, world.nodes), None)
    user = world.user("acme", ["teams"])
    principal = stores.tokens.authenticate(user.token)
    stored = {"reserve": stores.quotas, "release": stores.quotas, "remove": stores.teams}
    away_once(monkeypatch, stored.get(first, stores.tokens), first)
    away_once(monkeypatch, stored.get(second, stores.tokens), second)
    request = team_pb2.PutTeamRequest(name="pipeline", definition=team_pb2.TeamDefinition())
    with pytest.raises(DatabaseUnavailableError):
        teams.put(principal, request)
    teams.sweep()
    assert 0 == stores.quotas.used(user.tenant)[Quota.TEAMS]
    assert "pipeline" == teams.put(principal, request).name
    assert (1, 2) == (stores.quotas.used(user.tenant)[Quota.TEAMS], len(stores.tokens.of(user.tenant)))


def test_one_that_is_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone for the client that deleted it, which cannot ask again."""
    stores = world.stores
    teams = TeamRegistry(stores, world.state, RuntimeRegistry(stores, world.nodes), None)
    user = world.user("acme", ["teams"])
    principal = stores.tokens.authenticate(user.token)
    teams.put(principal, team_pb2.PutTeamRequest(name="pipeline", definition=team_pb2.TeamDefinition()))
    away_once(monkeypatch, stores.tokens, "forget")
    with pytest.raises(DatabaseUnavailableError):
        teams.delete(principal, "pipeline")
    teams.sweep()
    assert (0, 1) == (stores.quotas.used(user.tenant)[Quota.TEAMS], len(stores.tokens.of(user.tenant)))
    assert [] == list(world.state.teams.iterdir())


def test_the_audit_log_has_the_token_of_a_team(world: World) -> None:
    """When it is issued, and that it has ended, as of a job."""
    stores = world.stores
    teams = TeamRegistry(stores, world.state, RuntimeRegistry(stores, world.nodes), None)
    principal = stores.tokens.authenticate(world.user("acme", ["teams"]).token)
    teams.put(principal, team_pb2.PutTeamRequest(name="pipeline", definition=team_pb2.TeamDefinition()))
    teams.delete(principal, "pipeline")
    events = (entry.event for entry in selected(log_files(world.state.audit), EntrySelection()))
    changes = [event.facts["change"] for event in events if event.kind == "token"]
    assert ["issued", "ended"] == changes[-2:]
