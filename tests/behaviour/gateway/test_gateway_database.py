"""The gateway's database: its schema, its file modes, its durability."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.descriptors import locks_on

from cenote.gateway.errors import DatabaseUnavailableError, NewerSchemaError
from cenote.gateway.store.database import Database
from cenote.gateway.store.schema import MIGRATIONS
from cenote.gateway.store.tenants import Tenants
from cenote_security.errors import EntryExistsError, UnavailableError, UsageError

KILLED_WRITER = """
import sys
from pathlib import Path
from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenants

tenants = Tenants(Database(Path(sys.argv[1])))
number = 0
while True:
    tenants.create(f"tenant-{number}")
    print(number, flush=True)
    number += 1
"""


def schema_of(path: Path) -> set[str]:
    with sqlite3.connect(path) as connection:
        return {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def test_a_text_that_utf8_cannot_write(tmp_path: Path) -> None:
    """It is escaped wherever it occurs: neither database accepts it, and the statement would fail."""
    with Database(tmp_path / "gateway.db") as database:
        assert ["half of \\ud83d", 3] == list(database.rows("SELECT ?, ?", "half of \ud83d", 3)[0])


@pytest.mark.parametrize("number", [2**63, -(2**63), 2**64 - 1])
def test_a_number_that_no_database_takes(tmp_path: Path, number: int) -> None:
    """A client of the platform can send one; the error is in the client's terms."""
    with Database(tmp_path / "gateway.db") as database:
        assert [2**63 - 1] == list(database.rows("SELECT ?", 2**63 - 1)[0])
        with pytest.raises(UsageError, match="out of range"):
            database.rows("SELECT ?", number)


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    """An older program would write data that the newer one misreads."""
    path = tmp_path / "gateway.db"
    with Database(path) as database:
        database.execute("UPDATE schema_version SET version = ?", len(MIGRATIONS) + 1)
    before = schema_of(path)
    with pytest.raises(NewerSchemaError, match=f"schema {len(MIGRATIONS) + 1}.*newer version") as caught:
        Database(path)
    assert isinstance(caught.value, UnavailableError)
    assert before == schema_of(path)


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_each_older_schema_becomes_the_current_one(tmp_path: Path, version: int) -> None:
    """A database at any earlier schema is migrated, to the same tables as a new one."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with sqlite3.connect(old) as connection:
        connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (?)", (version,))
        for statement in (statement for step in MIGRATIONS[:version] for statement in step):
            connection.execute(statement)
    connection.close()
    for path in (old, new):
        Database(path).close()
    assert {sql.replace("IF NOT EXISTS ", "") for sql in schema_of(new)} == schema_of(old)


def test_the_files_are_private(tmp_path: Path) -> None:
    """The database and SQLite's files beside it, whatever the umask; also a database that an operator created."""
    path = tmp_path / "gateway.db"
    path.touch(mode=0o644)
    old = os.umask(0)
    try:
        with Database(path) as database:
            Tenants(database).create("acme")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert {"gateway.db": 0o600, "gateway.db-shm": 0o600, "gateway.db-wal": 0o600} == modes


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    """All of it or nothing, and the database continues to work."""
    tenants = Tenants(database)
    with pytest.raises(EntryExistsError), database.transaction():
        tenants.create("acme"), tenants.create("acme")
    assert [] == tenants.all()
    tenants.create("acme")


def test_threads_and_other_connections_wait_for_each_other(database: Database, db: Path | str) -> None:
    """Commands on the same machine use the file while the gateway does."""
    with Database(db) as other, ThreadPoolExecutor(4) as pool:
        stores = [Tenants(database), Tenants(other)]
        names = {f"tenant-{number}" for number in range(40)}
        list(pool.map(lambda name: stores[int(name[-1]) % 2].create(name), names))
        assert names == {tenant.name for tenant in stores[0].all()}


def test_a_second_connection_releases_no_lock(tmp_path: Path) -> None:
    """Neither its beginning nor its end, while a first one of the same process has the file mapped."""
    path, mapped = tmp_path / "gateway.db", tmp_path / "gateway.db-shm"
    with Database(path) as database:
        Tenants(database).create("acme")
        before = locks_on(path, mapped)
        assert all(before)
        other = Database(path)
        assert before == locks_on(path, mapped)
        other.close()
        assert before == locks_on(path, mapped)


def test_what_is_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """A writer is killed in the middle; each tenant that it acknowledged is present."""
    path = tmp_path / "gateway.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    told += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    writer.stdout.close()
    with Database(path) as database:
        kept = {tenant.name for tenant in Tenants(database).all()}
    assert {f"tenant-{number}" for number in told} <= kept
    assert len(kept) <= len(told) + 1


@pytest.mark.parametrize(
    "make", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"no database" * 99)]
)
def test_what_is_no_database(tmp_path: Path, make: object) -> None:
    """A clear error that names the path."""
    path = tmp_path / "gateway.db"
    make(path)  # type: ignore[operator]
    with pytest.raises(DatabaseUnavailableError, match=r"gateway\.db.*cannot be used"):
        Database(path)


@pytest.mark.databases("sqlite")
def test_what_is_damaged_or_full_says_what_helps(tmp_path: Path, database: Database) -> None:
    """Neither is fixed by a retry."""
    database.execute(f"PRAGMA max_page_count = {database.rows('PRAGMA page_count')[0]['page_count']}")
    with pytest.raises(DatabaseUnavailableError, match="full; make room"):
        deque(Tenants(database).create(f"tenant-{number}") for number in range(10_000))
    path = tmp_path / "damaged.db"
    Database(path).close()
    with path.open("r+b") as file:
        file.seek(1024)
        file.write(bytes(range(256)) * 64)
    with pytest.raises(DatabaseUnavailableError, match=r"malformed; .*put a backup of it back"):
        Database(path)


def test_after_the_end_it_is_unavailable(database: Database) -> None:
    """Closing twice is allowed; use after closing is a bug in cenote."""
    database.close()
    database.close()
    with pytest.raises(DatabaseUnavailableError, match="closed"):
        Tenants(database).all()
