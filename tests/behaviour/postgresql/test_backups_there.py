"""Backups of a platform with records in PostgreSQL, and restores from a file into it and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.gateway.backup.backup import back_up
from cenote.gateway.backup.restore import restore
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.store.database import Database, database_place, keep_database_url
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote_security.auth.tokens import ORDINARY_SCOPES

pytestmark = pytest.mark.databases("postgresql")


def test_records_move_between_a_file_and_a_server(tmp_path: Path, db: str) -> None:
    """A token that was issued with a file opens the platform on the server, and the one after that in a file."""
    first, second, third = (StateFolder(path=tmp_path / name / "state") for name in ("1", "2", "3"))
    with Stores(first) as stores:
        tenant = stores.tenants.create("acme")
        token = stores.tokens.issue(tenant.id, ORDINARY_SCOPES, note="NUL \0 and \x1a").text
    back_up(first, tmp_path / "backup-1")
    restore(second, tmp_path / "backup-1", database=db)
    assert database_place(second) == db
    with Stores(second) as stores:
        assert stores.tokens.authenticate(token).tenant == tenant.id
        back_up(second, tmp_path / "backup-2")  # while the platform has its claim
    restore(third, tmp_path / "backup-2")
    with Stores(third) as stores:
        found = stores.tokens.authenticate(token)
        assert stores.tokens.get(found.tenant, found.token).note == "NUL \0 and \x1a"


def test_a_database_with_tables_is_left_alone(tmp_path: Path, db: str) -> None:
    first, second = (StateFolder(path=tmp_path / name / "state") for name in ("1", "2"))
    Stores(first).close()
    back_up(first, tmp_path / "backup")
    with Database(db) as database:
        Tenants(database).create("theirs")
    with pytest.raises(DatabaseUnavailableError, match=r"tables of a platform; name an empty one"):
        restore(second, tmp_path / "backup", database=db)
    assert not second.path.exists()
    with Database(db) as database:
        assert ["theirs"] == [tenant.name for tenant in Tenants(database).all()]


def test_a_snapshot_sees_one_moment(db: str) -> None:
    with Database(db) as writer, Database(db) as reader:
        Tenants(writer).create("before")
        with reader.snapshot():
            assert len(reader.rows("SELECT id FROM tenants")) == 1
            later = Tenants(writer).create("later")
            Tokens(writer).issue(later.id, ORDINARY_SCOPES)
            assert len(reader.rows("SELECT id FROM tenants")) == 1
            assert len(reader.rows("SELECT id FROM tokens")) == 0


def test_a_server_is_remembered_for_backups(tmp_path: Path, db: str) -> None:
    state = StateFolder(path=tmp_path / "state")
    keep_database_url(state, db)
    with Stores(state) as stores:
        stores.tenants.create("acme")
    assert back_up(state, tmp_path / "backup").tenants == 1
