"""How a platform's records survive a server that restarts, hangs, or belonged to another platform."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.postgresql_server import PostgresqlServer
from tests.waiting import until

from cenote.gateway.audit.events import AuditEvent
from cenote.gateway.errors import DatabaseUnavailableError, NewerSchemaError
from cenote.gateway.process.daemon_lock import DaemonLock, Running
from cenote.gateway.store.database import Database, database_place, keep_database_url
from cenote.gateway.store.schema import MIGRATIONS
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.store.tenants import Tenants
from cenote_proto.scalars import utf8_text
from cenote_security.errors import SecretFileError, UnavailableError, UsageError
from cenote_worker.process.patient_wait import PatientWait

pytestmark = pytest.mark.databases("postgresql")

COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = current_schema()
"""


def columns(database: Database) -> set[tuple[str, ...]]:
    return {tuple(map(str, dict(row).values())) for row in database.rows(COLUMNS)}  # type: ignore[call-overload]


def test_each_older_schema_becomes_the_current_one(server: PostgresqlServer, db: str) -> None:
    """A database that stopped at any earlier schema is migrated; a newer one is refused."""
    with Database(db) as new:
        wanted = columns(new)
        new.execute("UPDATE schema_version SET version = ?", len(MIGRATIONS) + 1)
    with pytest.raises(NewerSchemaError):
        Database(db)
    for version in range(len(MIGRATIONS)):
        schema = f"old{version}"
        server.execute(f"CREATE SCHEMA {schema}")
        made = [statement for step in MIGRATIONS[:version] for statement in step]
        before = ["CREATE TABLE schema_version (version BIGINT NOT NULL)", *made]
        server.execute(f"SET search_path TO {schema}; " + ";".join(before))
        server.execute(f"INSERT INTO {schema}.schema_version VALUES ({version})")
        with Database(f"{server.url}&options=-c%20search_path%3D{schema}") as old:
            assert wanted == columns(old)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.one_of(st.sampled_from("\0\x1a01%?\\'\ud83d"), st.characters())))
def test_texts_come_back_as_they_were(database: Database, text: str) -> None:
    """Whatever code prints: PostgreSQL's texts have no NUL, and lone surrogates are escaped."""
    with database.transaction():
        database.execute("DELETE FROM notices")
        database.execute("INSERT INTO notices (number, event) VALUES (?, ?)", 1, text)
    row = database.row("SELECT event, '100%' AS sign FROM notices WHERE event = ?", text)
    assert row is not None
    assert (utf8_text(text), "100%") == (row["event"], row["sign"])


def test_a_server_that_is_started_again(server: PostgresqlServer, database: Database) -> None:
    """A running transaction leaves nothing; the next call finds the server."""
    tenants = Tenants(database)
    tenants.create("kept")
    server.kill()
    with pytest.raises(DatabaseUnavailableError, match=r"postgresql://postgres@.*cannot be used"):
        tenants.create("nobody")
    server.start()
    tenants.create("next")
    with pytest.raises(DatabaseUnavailableError):
        _break_in_the_middle(server, database)
    assert {"kept", "next"} == {tenant.name for tenant in tenants.all()}
    server.kill()
    server.start()
    assert {"kept", "next"} == {tenant.name for tenant in tenants.all()}


def _break_in_the_middle(server: PostgresqlServer, database: Database) -> None:
    with database.transaction():
        Tenants(database).create("half")
        server.kill()
        server.start()
        Tenants(database).create("half too")


@pytest.mark.slow
def test_a_server_that_hangs(server: PostgresqlServer, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the existing connection nor a new one is waited for without limit, and afterwards all is as before."""
    with Database(db) as before:
        Tenants(before).create("kept")
    monkeypatch.setattr("cenote.gateway.store.postgresql.PATIENCE", 0.5)
    with Database(f"{db}&connect_timeout=2") as database:
        tenants = Tenants(database)
        row = database.row("SELECT pg_backend_pid() AS process")
        assert row is not None
        with server.stopped(row["process"]):
            for _ in range(2):
                with pytest.raises(DatabaseUnavailableError):
                    tenants.all()
        assert ["kept"] == until(lambda: _names(tenants))


def _names(tenants: Tenants) -> list[str]:
    """None where the server takes longer than the timeout, as it may on this machine."""
    with suppress(DatabaseUnavailableError):
        return [tenant.name for tenant in tenants.all()]
    return []


@pytest.mark.slow
def test_one_platform_at_a_time(db: str, tmp_path: Path) -> None:
    """A second one would work on the same teams and jobs. Operators' commands are admitted."""
    folders = [StateFolder(path=tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        keep_database_url(folder, db)
    with Stores(folders[0]) as stores:
        stores.tenants.create("acme")
        with pytest.raises(DatabaseUnavailableError, match="another platform works with it; end that one"):
            Stores(folders[1])
        with Database(db) as operator:
            assert ["acme"] == [tenant.name for tenant in Tenants(operator).all()]
    Stores(folders[1]).close()


def test_a_former_gateway_whose_connection_is_about_to_end(db: str, tmp_path: Path) -> None:
    """For example after a kill: the server notices it a moment later, and the next gateway waits for that."""
    folders = [StateFolder(path=tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        keep_database_url(folder, db)
    former = Stores(folders[0])
    tries = []

    class Watched(PatientWait):
        def piece(self) -> float:
            tries.append(1)
            if len(tries) == 2:
                former.close()
            return super().piece()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cenote.gateway.store.postgresql.PatientWait", Watched)
        Stores(folders[1]).close()
    assert len(tries) > 1


@pytest.mark.slow
def test_the_claim_is_taken_again_with_the_line(server: PostgresqlServer, db: str, tmp_path: Path) -> None:
    """Otherwise a platform whose server was restarted could be joined by another one."""
    folders = [StateFolder(path=tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        keep_database_url(folder, db)
    with Stores(folders[0]) as stores:
        server.kill()
        server.start()
        stores.tenants.create("acme")
        with pytest.raises(DatabaseUnavailableError, match="another platform"):
            Stores(folders[1])


def test_a_database_that_is_lost_is_not_made_anew(server: PostgresqlServer, db: str, tmp_path: Path) -> None:
    """As with a file: a wrong URL would lock all tenants out."""
    folder = StateFolder(path=tmp_path / "state")
    keep_database_url(folder, db)
    with Stores(folder) as stores:
        stores.recorder.record(AuditEvent(kind="token.created", facts={})).result(30)
    server.execute("CREATE SCHEMA empty")
    with pytest.raises(DatabaseUnavailableError, match=r"empty or gone.*name the one that this platform has"):
        keep_database_url(folder, f"{server.url}&options=-c%20search_path%3Dempty")
    Stores(folder).close()
    schema = db.rpartition("%3D")[2]
    server.execute(f"DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}")
    with pytest.raises(DatabaseUnavailableError, match=r"empty or gone.*put it back .* or move '.*' away"):
        Stores(folder)


@pytest.mark.parametrize("url", ["mysql://host/name", "gateway.db", "postgresql://host/name?nonsense=1", ""])
def test_what_is_no_database(url: str, tmp_path: Path) -> None:
    """It is not stored."""
    folder = StateFolder(path=tmp_path / "state")
    with pytest.raises(UsageError):
        keep_database_url(folder, url)
    assert folder.database == database_place(folder)


def test_no_password_is_shown(db: str, tmp_path: Path) -> None:
    """Neither in errors nor to other users. The URL of an unreachable server is not stored."""
    folder = StateFolder(path=tmp_path / "state")
    keep_database_url(folder, f"{db}&password=secret")
    assert 0 == stat.S_IMODE(folder.database_url.stat().st_mode) & 0o077
    with pytest.raises(DatabaseUnavailableError) as caught:
        keep_database_url(folder, f"postgresql://me:secret@/name?host={tmp_path}&password=secret")
    assert f"{db}&password=secret" == database_place(folder)
    assert f"postgresql://me@{tmp_path}/name" in str(caught.value)
    assert "secret" not in str(caught.value)
    folder.database_url.chmod(0o644)
    with pytest.raises(SecretFileError, match="chmod 600"):
        database_place(folder)


def test_not_while_it_runs(db: str, tmp_path: Path) -> None:
    """Its processes would use two databases."""
    folder = StateFolder(path=tmp_path / "state")
    keep_database_url(folder, db)
    lock = DaemonLock(folder.lock)
    try:
        lock.write(Running(pid=os.getpid(), since=1.0, address="localhost:1"))
        with pytest.raises(UnavailableError, match="runs here already"):
            keep_database_url(folder, f"{db}x")
    finally:
        lock.release()
    assert db == database_place(folder)


def test_records_do_not_move_by_themselves(db: str, tmp_path: Path) -> None:
    """A platform with a file continues to use it; the error says how to use a database instead."""
    folder = StateFolder(path=tmp_path / "state")
    Stores(folder).close()
    with pytest.raises(UsageError, match="XDG_STATE_HOME"):
        keep_database_url(folder, db)
    Stores(folder).close()
