"""The gateway's database: a SQLite file of the state folder, or PostgreSQL by URL.

The schema is migrated when the database is opened. The URL is in a private file of the state folder: it may contain a
password, and the arguments of a process are visible to all users of the machine. All processes of the platform, and
its operator's commands, read it there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cenote.gateway.errors import DatabaseUnavailableError, NewerSchemaError
from cenote.gateway.process.daemon_lock import running_at, runs_already
from cenote.gateway.store.schema import MIGRATIONS
from cenote.gateway.store.session import DatabaseRow, DatabaseSession, Value
from cenote.gateway.store.state_folder import StateFolder
from cenote_proto.scalars import utf8_text
from cenote_security.auth.secret_files import read_secret_file, replace_file
from cenote_security.errors import MalformedValueError, UsageError

NO_LIMIT: Final = 2**63 - 1
"""For LIMIT, which needs a number in both databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRows:
    """schema: the version of the tables. rows: table and columns of each, whose names are valid."""

    schema: int
    rows: Iterable[tuple[str, Mapping[str, Value]]]


class Database:
    """Used from any thread; statements wait for each other."""

    def __init__(self, place: Path | str, *, lost: str = "", filled: FormerRows | None = None) -> None:
        """place: a file, made if need be, or a URL. lost: for a database that was used before, what to do when it is
        gone: a new one would have none of the tokens, and nothing of what is stored. filled: for an empty one, the
        rows that it begins with: all of them, or the database stays empty.

        Raises DatabaseUnavailableError, also for one to be filled that is not empty, NewerSchemaError; UsageError for
        a bad URL.
        """
        self._lock = threading.RLock()
        self._session = _session(place)
        self.place = self._session.place
        self.file = place if isinstance(place, Path) else None
        try:
            self._migrate(lost, filled)
        except BaseException:
            self._session.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside take effect, or none. Other connections may read meanwhile, and not write."""
        with self._lock:
            self._session.begin()
            try:
                yield
                self._session.commit()
            except BaseException:
                if self._session.in_transaction:
                    self._session.rollback()
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All questions inside see the same moment. Other connections may read and write meanwhile."""
        with self._lock:
            self._session.begin_snapshot()
            try:
                yield
            finally:
                if self._session.in_transaction:
                    self._session.rollback()

    def execute(self, sql: str, *values: Value) -> int:
        """Runs one statement; how many rows it changed. Raises DuplicateRowError, which spoils a transaction."""
        with self._lock:
            return self._session.run(sql, _fitting(values))

    def row(self, sql: str, *values: Value) -> DatabaseRow | None:
        """The only row of an answer, None if there is none."""
        rows = self.rows(sql, *values)
        return rows[0] if rows else None

    def rows(self, sql: str, *values: Value) -> Sequence[DatabaseRow]:
        with self._lock:
            return self._session.rows(sql, _fitting(values))

    def check_writing(self) -> None:
        """Makes a change without effect. Raises DatabaseUnavailableError where no change is possible."""
        self.execute("UPDATE schema_version SET version = version")

    def claim(self) -> None:
        """Claims the database for one gateway. Raises DatabaseUnavailableError for a second one."""
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

    def _migrate(self, lost: str, filled: FormerRows | None) -> None:
        with self.transaction():
            version = self._version()
            if filled is not None:
                version = self._fill(version, filled)
            if version > len(MIGRATIONS):
                raise NewerSchemaError(self.place, version, len(MIGRATIONS))
            if version == len(MIGRATIONS):
                return
            if version == 0 and lost:
                raise DatabaseUnavailableError(self.place, "it is empty or gone, and there was one", lost)
            self._step(version, len(MIGRATIONS))

    def _step(self, version: int, wanted: int) -> None:
        for statement in (statement for step in MIGRATIONS[version:wanted] for statement in step):
            self.execute(statement)
        self.execute("UPDATE schema_version SET version = ?", wanted)

    def _fill(self, version: int, filled: FormerRows) -> int:
        """Returns the version that it has then. The rows are those of the schema that they were read from."""
        if version:
            raise DatabaseUnavailableError(self.place, "it has tables of a platform", "name an empty one")
        if filled.schema > len(MIGRATIONS):
            raise NewerSchemaError("of the backup", filled.schema, len(MIGRATIONS))
        self._step(0, filled.schema)
        for table, row in filled.rows:
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            self.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", *row.values())  # noqa: S608  (checked)
        return filled.schema

    def _version(self) -> int:
        self.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
        row = self.row("SELECT version FROM schema_version")
        if row is not None:
            return int(row["version"])
        self.execute("INSERT INTO schema_version (version) VALUES (0)")
        return 0


def _fitting(values: Sequence[Value]) -> Sequence[Value]:
    """Replaces lone surrogates, which a model, a jail or a file of tasks may contain and neither database accepts.
    Raises UsageError for a number of more than 64 bits: the caller sent it.
    """
    for value in values:
        if isinstance(value, int) and abs(value) > NO_LIMIT:
            raise UsageError(f"{value} is out of range: numbers go up to {NO_LIMIT}")
    return [utf8_text(value) if isinstance(value, str) else value for value in values]


def _session(place: Path | str) -> DatabaseSession:
    """Loads only the driver that is needed: processes of teams and jobs start by the hundred."""
    if isinstance(place, Path):
        from cenote.gateway.store.sqlite import SqliteSession

        return SqliteSession(place)
    from cenote.gateway.store.postgresql import PostgresqlSession

    return PostgresqlSession(place)


DATABASE: Final = "CENOTE_DATABASE"
"""The environment variable for the URL when a platform is started."""


def database_place(state: StateFolder) -> Path | str:
    """For Database. Raises SecretFileError for a URL that others may read."""
    if not state.database_url.exists():
        return state.database
    try:
        return read_secret_file(state.database_url).decode().strip()
    except UnicodeDecodeError:
        raise MalformedValueError(f"{str(state.database_url)!r} holds no URL") from None


def keep_database_url(state: StateFolder, url: str) -> None:
    """Sets the database of this folder's platform.

    A different URL may be the same database by another route, or with another password: it must have the tables of a
    platform. A URL that cannot be opened is not stored. Raises UsageError for an invalid URL, or where the records
    are in a file; UnavailableError while the platform runs, without the driver, or for a database that cannot be
    used; SecretFileError.
    """
    for lock in (state.lock, state.watch):
        if (running := running_at(lock)) is not None:
            raise runs_already(running)
    if state.database.exists():
        raise UsageError(
            f"this platform keeps its records in {str(state.database)!r}; for one that keeps them in PostgreSQL name "
            "another folder with XDG_STATE_HOME"
        )
    state.make()
    lost = "name the one that this platform has worked with" if state.database_url.exists() else ""
    Database(url, lost=lost).close()
    replace_file(state.database_url, f"{url}\n".encode())
