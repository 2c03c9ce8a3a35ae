"""The gateway's database as one SQLite file, private to its owner.

Each commit is on the disk before it returns (WAL with synchronous=FULL): a revoked token stays revoked after a power
cut. Commands on the same machine may use the file while the gateway does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cenote.gateway.errors import DatabaseUnavailableError, DuplicateRowError
from cenote.gateway.store.session import DatabaseRow, Value
from cenote_security.auth.secret_files import make_private_file

_BUSY_SECONDS: Final = 5.0
"""Seconds to wait for another process's transaction; they take milliseconds."""


class SqliteSession:
    """See DatabaseSession."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it. Raises DatabaseUnavailableError."""
        self._path = path
        with self._explained():
            _make_private(path)
            self._connection = _connect(path)

    @property
    def place(self) -> str:
        return str(self._path)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE", ())

    def begin_snapshot(self) -> None:
        self.run("BEGIN DEFERRED", ())

    def commit(self) -> None:
        self.run("COMMIT", ())

    def rollback(self) -> None:
        self.run("ROLLBACK", ())

    def run(self, sql: str, values: Sequence[Value]) -> int:
        with self._explained():
            return self._connection.execute(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Value]) -> list[DatabaseRow]:
        with self._explained():
            return self._connection.execute(sql, values).fetchall()

    def claim(self) -> None:
        """Does nothing: the folder's lock already excludes a second gateway."""

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise DuplicateRowError(str(error)) from None
        except (sqlite3.Error, OSError) as error:
            raise DatabaseUnavailableError(self.place, str(error), _remedy(error)) from None


def _remedy(error: Exception) -> str:
    """SQLite has no narrower class for errors of the file's content."""
    if type(error) is sqlite3.DatabaseError:
        return (
            "end the platform, put a backup of it back, and start again (deploy/README.md says what one is)"
        )
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return "make room there, and try again"
    return ""


def _make_private(path: Path) -> None:
    """SQLite gives its additional files the mode of the database. The folder exists: a platform's state that was
    moved away is not begun anew.
    """
    if not make_private_file(path):
        path.chmod(0o600)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection
