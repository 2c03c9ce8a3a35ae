"""One server for all tests, and a schema of its own for each test's database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.gateway.conftest import acme, clock, database, rival, tenants
from tests.postgresql_server import PostgresqlServer


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as server:
        yield server


@pytest.fixture
def place(server: PostgresqlServer) -> str:
    """A URL, as for SQLAlchemy; creating several databases on one server would be slow."""
    schema = f"s{uuid.uuid4().hex}"
    server.execute(f"CREATE SCHEMA {schema}")
    return f"{server.url}&options=-c%20search_path%3D{schema}"
