"""Databases of a platform for tests: a new one for each, in each kind that a platform may keep its records in.

A test that uses `db` runs with each of `DATABASES`, unless `@pytest.mark.databases("sqlite")` says otherwise
(`tests/variants.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # at run time in the fixtures: most tests need none of it
    from tests.support.postgresql_server import PostgresqlServer

    from cenote.gateway.store.database import Database

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    """One for all tests of this process. A test that ends it starts it again."""
    from tests.support.postgresql_server import PostgresqlServer

    with PostgresqlServer() as server:
        yield server


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """What `Database` opens: the path of a file, or a URL, as for SQLAlchemy."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return tmp_path / "gateway.db"
    server: PostgresqlServer = request.getfixturevalue("server")
    schema = f"s{uuid.uuid4().hex}"  # creating several databases on one server would be slow
    server.execute(f"CREATE SCHEMA {schema}")
    return f"{server.url}&options=-c%20search_path%3D{schema}"


@pytest.fixture
def database(db: Path | str) -> Iterator[Database]:
    from cenote.gateway.store.database import Database

    with Database(db) as database:
        yield database
