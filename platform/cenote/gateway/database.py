"""The gateway's database: a file of SQLite's or PostgreSQL by URL, brought to the current schema when opened."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from cenote.gateway.errors import DatabaseUnavailableError, NewerSchemaError
from cenote.gateway.schema import MIGRATIONS
from cenote.gateway.session import Row, Session, Value
from cenote_proto.scalars import utf8_text
from cenote_security.errors import UsageError

NO_LIMIT: Final = 2**63 - 1
"""For LIMIT, which has to be some number in both."""


class Database:
    """Used from any thread; statements wait for each other."""

    def __init__(self, place: Path | str, *, lost: str = "") -> None:
        """place: a file, made if need be, or a URL. lost: where there must be one that was used before, what to do
        when it is gone: another one would let nobody in who was there, and know of nothing that is stored.

        Raises DatabaseUnavailableError, NewerSchemaError; UsageError for a bad URL.
        """
        self._lock = threading.RLock()
        self._session = _session(place)
        self.place = self._session.place
        self.file = place if isinstance(place, Path) else None
        try:
            self._migrate(lost)
        except BaseException:
            self._session.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens, or nothing does. Others may read meanwhile, and not write."""
        with self._lock:
            self._session.begin()
            try:
                yield
                self._session.commit()
            except BaseException:
                if self._session.in_transaction:
                    self._session.rollback()
                raise

    def execute(self, sql: str, *values: Value) -> int:
        """Runs one statement: how many rows it changed. Raises DuplicateRowError; a transaction is spoilt then."""
        with self._lock:
            return self._session.run(sql, _fitting(values))

    def row(self, sql: str, *values: Value) -> Row | None:
        """The only row of an answer, None if there is none."""
        rows = self.rows(sql, *values)
        return rows[0] if rows else None

    def rows(self, sql: str, *values: Value) -> Sequence[Row]:
        with self._lock:
            return self._session.rows(sql, _fitting(values))

    def check_writing(self) -> None:
        """Changes nothing, as a change. Raises DatabaseUnavailableError where none can be made."""
        self.execute("UPDATE schema_version SET version = version")

    def claim(self) -> None:
        """For the one gateway that works with it. Raises DatabaseUnavailableError for a second one."""
        with self._lock:
            self._session.claim()

    def close(self) -> None:
        """Closing twice is fine."""
        with self._lock:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _migrate(self, lost: str) -> None:
        with self.transaction():
            version = self._version()
            if version > len(MIGRATIONS):
                raise NewerSchemaError(self.place, version, len(MIGRATIONS))
            if version == len(MIGRATIONS):
                return
            if version == 0 and lost:
                raise DatabaseUnavailableError(self.place, "it is empty or gone, and there was one", lost)
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


def _fitting(values: Sequence[Value]) -> Sequence[Value]:
    """Neither database takes a lone surrogate, which a model, a jail or a file of tasks may hold, nor a number of
    more than 64 bits. Raises UsageError for such a number: it is a caller's.
    """
    for value in values:
        if isinstance(value, int) and abs(value) > NO_LIMIT:
            raise UsageError(f"{value} is out of range: numbers go up to {NO_LIMIT}")
    return [utf8_text(value) if isinstance(value, str) else value for value in values]


def _session(place: Path | str) -> Session:
    """Each loads what it needs alone: processes of teams and jobs start by the hundred."""
    if isinstance(place, Path):
        from cenote.gateway.sqlite_session import SqliteSession

        return SqliteSession(place)
    from cenote.gateway.postgresql_session import PostgresqlSession

    return PostgresqlSession(place)
