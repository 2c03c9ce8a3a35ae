"""A database of its own for each test, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote.gateway.database import Database
from cenote.gateway.tenants import Tenant, Tenants


class StillClock:
    """Time that passes when the test says so."""

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
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "gateway.db") as database:
        yield database


@pytest.fixture
def tenants(database: Database, clock: StillClock) -> Tenants:
    return Tenants(database, clock)


@pytest.fixture
def acme(tenants: Tenants) -> Tenant:
    return tenants.create("acme")


@pytest.fixture
def rival(tenants: Tenants) -> Tenant:
    return tenants.create("rival")
