"""The gateway's database: one SQLite file, private to its owner, brought to the current schema when it is opened.

Each commit is on the disk before it returns (WAL with synchronous=FULL): a revoked token stays revoked after a power
cut. Commands on the same machine may use the file while the gateway does.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from cenote.gateway.errors import DatabaseUnavailableError, NewerSchemaError
from cenote.gateway.schema import MIGRATIONS

Value = str | int | float | None
Row = sqlite3.Row
"""One row; columns by name."""

_BUSY_SECONDS: Final = 5.0
"""How long another process's transaction is waited for: ours take milliseconds."""


class Database:
    """Used from any thread; statements wait for each other."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it. Raises DatabaseUnavailableError, NewerSchemaError."""
        self.path = path
        self._lock = threading.RLock()
        with self._explained():
            _make_private(path)
            self._connection = _connect(path)
        try:
            self._migrate()
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens, or nothing does. Others may read meanwhile, and not write."""
        with self._lock:
            self._run("BEGIN IMMEDIATE", ())
            try:
                yield
                self._run("COMMIT", ())
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK", ())
                raise

    def execute(self, sql: str, *values: Value) -> int:
        """Runs one statement: how many rows it changed. Raises sqlite3.IntegrityError for a duplicate."""
        with self._lock:
            return self._run(sql, values).rowcount

    def row(self, sql: str, *values: Value) -> Row | None:
        """The only row of an answer, None if there is none."""
        rows = self.rows(sql, *values)
        return rows[0] if rows else None

    def rows(self, sql: str, *values: Value) -> list[Row]:
        with self._lock, self._explained():
            return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Closing twice is fine."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, sql: str, values: tuple[Value, ...]) -> sqlite3.Cursor:
        with self._explained():
            return self._connection.execute(sql, values)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise  # a name is taken: whoever asked knows what that means
        except (sqlite3.Error, OSError) as error:
            raise DatabaseUnavailableError(self.path, str(error)) from None

    def _migrate(self) -> None:
        with self.transaction():
            version = self._version()
            if version > len(MIGRATIONS):
                raise NewerSchemaError(self.path, version, len(MIGRATIONS))
            if version == len(MIGRATIONS):
                return
            for statement in (statement for step in MIGRATIONS[version:] for statement in step):
                self.execute(statement)
            self.execute("UPDATE schema_version SET version = ?", len(MIGRATIONS))

    def _version(self) -> int:
        self.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        row = self.row("SELECT version FROM schema_version")
        if row is not None:
            return int(row["version"])
        self.execute("INSERT INTO schema_version (version) VALUES (0)")
        return 0


def _make_private(path: Path) -> None:
    """SQLite gives the files that it puts beside the database the mode that the database has.

    A file that is there is not opened: closing it would end the locks that this process holds on it by other ways.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        path.chmod(0o600)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection
