"""Fixtures: a clock that does not advance by itself, and whole platforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway.world import World

from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenant, Tenants


class StillClock:
    """A clock that advances only when the test says so."""

    def __init__(self) -> None:
        self.now = 1_750_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def tenants(database: Database, clock: StillClock) -> Tenants:
    return Tenants(database, clock)


@pytest.fixture
def acme(tenants: Tenants) -> Tenant:
    return tenants.create("acme")


@pytest.fixture
def rival(tenants: Tenants) -> Tenant:
    return tenants.create("rival")


@pytest.fixture
def make_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Platforms over real jails, each with its own folders, that poll more often than usual."""
    monkeypatch.setattr("cenote.gateway.machines.local_nodes.LOOK_EVERY", 0.05)
    monkeypatch.setattr("cenote.gateway.api.server.COLLECT_EVERY", 0.1)
    made: list[World] = []

    def make(**settings: Any) -> World:
        made.append(World(tmp_path / f"world-{len(made)}", **settings))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture(params=["direct", "relayed"])
def either(make_world: Callable[..., World], request: pytest.FixtureRequest) -> World:
    """A platform whose clients connect to their runtimes directly, and one whose clients go through the gateway."""
    return make_world(relayed=request.param == "relayed")
