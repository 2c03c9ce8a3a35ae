"""A history in a database: a SQLite file, or PostgreSQL by URL. One database may keep the histories of many runtimes.

An event is stored as the message that is sent to clients; the other tables are for queries that should not read every
event. A file that is being written is locked: the kernel releases the lock however its holder ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from cenote_security.auth.secret_files import make_private_file
from cenote_security.errors import (
    HistoryTakenError,
    HistoryUnavailableError,
    MalformedValueError,
    NewerHistoryError,
    UsageError,
)
from cenote_security.extras import MissingExtraError
from cenote_worker.execution.trace import Location
from cenote_worker.history.events import Event, HeadMoved
from cenote_worker.history.messages import from_event, to_event
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import located, written
from cenote_worker.process.file_systems import check_path

VERSION: Final = 4
"""Version of the tables and of the messages in them. Version 2 added events of files that clients have written, 3
those of values that they have injected, and is that of 0.1.0; 4 added those of environments and steps of processes.
Older data is read as it is."""

METADATA: Final = MetaData()

SCHEMA: Final = Table("history_schema", METADATA, Column("version", Integer, nullable=False))

HISTORIES: Final = Table(
    "histories",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("id", String(64), nullable=False),
    Column("writer", String(64), nullable=False),
)
"""writer: the process that claimed it last. Earlier writers are refused from then on."""

EVENTS: Final = Table(
    "history_events",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("event", LargeBinary, nullable=False),
)

STEPS: Final = Table(
    "history_steps",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("parent", BigInteger, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("author", String(200), nullable=False),
    Column("started", Double, nullable=False),
    Index("history_steps_by_author", "runtime", "author"),
    Index("history_steps_by_time", "runtime", "started"),
)

LOCATIONS: Final = Table(
    "history_locations",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("location", String(500), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("written", Integer, primary_key=True),
)
"""The locations that each step read (0) and wrote (1): symbols, files, hidden state; see
cenote_worker.execution.trace."""


class WriterLock:
    """A lock on a file beside the database, since SQLite has its own locks on the database."""

    def __init__(self, database: Path) -> None:
        """Makes the database's folder, and the database private to its owner.

        Raises HistoryTakenError when another process holds the lock, HistoryUnavailableError.
        """
        try:
            database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private_file(database)
            self._database, self._known = database, _identity(database.stat())
            self._file = os.open(f"{database}.writer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HistoryUnavailableError(str(database), error.strerror or str(error)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise HistoryTakenError(str(database)) from None

    def check_file(self) -> None:
        """Checks that the database file still has its name: SQLite goes on writing into one that was removed.

        Raises HistoryUnavailableError.
        """
        try:
            found = _identity(self._database.stat())
        except OSError as error:
            raise HistoryUnavailableError(str(self._database), error.strerror or str(error)) from error
        if found != self._known:
            raise HistoryUnavailableError(
                str(self._database), "another file was put in its place; put the former one back"
            )

    def close(self) -> None:
        """Closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


_PAGE: Final = 1_000
"""Events read at a time."""

MOST_TAIL: Final = 1_000
"""Events after the last step that are read to find the head."""

_BUSY_SECONDS: Final = 5.0

_SERVER: Final = {"connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 30_000}
"""For libpq. A server that is stopped, or cannot be reached, is an error within half a minute."""

_STATEMENT: Final = 30_000
"""Milliseconds that a server may take for one statement, including waits for locks."""

_ONE_CLAIM: Final = 0x63656E6F7465
"""Key of the lock under which tables are made: two processes that make them at once would both fail."""

_KEY: Final = 500
"""Characters of a location in the index. PostgreSQL's entries have at most 2,700 bytes; a path may be longer."""


class StoredHistories:
    """The histories in a database, read beside any writer, which is not disturbed."""

    def __init__(self, engine: Engine, place: str) -> None:
        """place: for messages."""
        self._engine = engine
        self.place = place

    @classmethod
    def at(cls, place: str | Path) -> Self:
        """Opens the database of a HistoryStore, and changes nothing in it.

        Raises HistoryUnavailableError for what is no such database, NewerHistoryError, UsageError for a bad URL.
        """
        url = _url(place)
        path = url.database if url.get_backend_name() == "sqlite" else None
        called = path or url.render_as_string()
        with explained(called):
            found = cls(_read_only(Path(path)) if path else _engine(url), called)
            with found._engine.connect() as connection:
                version = connection.execute(select(SCHEMA.c.version)).scalar()
        if version is None:
            raise HistoryUnavailableError(called, "it has no history")
        if version > VERSION:
            raise NewerHistoryError(called, version, VERSION)
        return found

    def runtimes(self) -> dict[str, str]:
        """The id of each runtime's history, by the runtime's name. Raises HistoryUnavailableError."""
        query = select(HISTORIES.c.runtime, HISTORIES.c.id).order_by(HISTORIES.c.runtime)
        with explained(self.place), self._engine.connect() as connection:
            return {row.runtime: row.id for row in connection.execute(query)}

    def events(self, runtime: str, begin: int = 0) -> Iterator[Event]:
        """From a position on. Raises HistoryUnavailableError for a damaged database."""
        position = begin
        while page := self._page(runtime, position):
            for found, data in page:
                if found != position:
                    raise HistoryUnavailableError(self.place, f"event {position} is missing")
                yield self._read(position, data)
                position += 1

    def size(self, runtime: str) -> int:
        """Number of events. Raises HistoryUnavailableError."""
        query = select(func.max(EVENTS.c.position)).where(EVENTS.c.runtime == runtime)
        with explained(self.place), self._engine.connect() as connection:
            last = connection.execute(query).scalar()
        return 0 if last is None else int(last) + 1

    def step_count(self, runtime: str) -> int:
        """Raises HistoryUnavailableError."""
        query = select(func.count()).select_from(STEPS).where(STEPS.c.runtime == runtime)
        with explained(self.place), self._engine.connect() as connection:
            return int(connection.execute(query).scalar() or 0)

    def steps(self, runtime: str, begin: int, end: int) -> list[StepRecord]:
        """The steps from the begin-th on, from 0, to before the end-th, in the order in which they ended.

        Reads no other event. Raises HistoryUnavailableError for a damaged database.
        """
        wanted = (
            select(STEPS.c.position)
            .where(STEPS.c.runtime == runtime)
            .order_by(STEPS.c.position)
            .offset(begin)
            .limit(max(0, end - begin))
        )
        with explained(self.place), self._engine.connect() as connection:
            positions = list(connection.execute(wanted).scalars())
            rows = (
                select(EVENTS.c.position, EVENTS.c.event)
                .where((EVENTS.c.runtime == runtime) & EVENTS.c.position.in_(positions))
                .order_by(EVENTS.c.position)
            )
            found = [self._read(row.position, row.event) for row in connection.execute(rows)]
        return [each for each in found if isinstance(each, StepRecord)]

    def head(self, runtime: str) -> int | None:
        """The step whose state was live at the end, see StepTree; None where more than MOST_TAIL events would have to
        be read for that. Raises HistoryUnavailableError for a damaged database.
        """
        moving = STEPS.c.status.in_(("ok", "failed", "lost"))
        query = (
            select(STEPS.c.number, STEPS.c.position, STEPS.c.status)
            .where((STEPS.c.runtime == runtime) & moving)
            .order_by(STEPS.c.position.desc())
            .limit(1)
        )
        with explained(self.place), self._engine.connect() as connection:
            last = connection.execute(query).first()
        begin = 0 if last is None else last.position + 1
        if self.size(runtime) - begin > MOST_TAIL:
            return None
        head = START if last is None or last.status == "lost" else int(last.number)
        for each in self.events(runtime, begin):
            head = each.head if isinstance(each, HeadMoved) else head
        return head

    def _read(self, position: int, data: bytes) -> Event:
        """Raises HistoryUnavailableError."""
        try:
            return to_event(data)
        except MalformedValueError as error:
            raise HistoryUnavailableError(self.place, f"event {position} is damaged: {error}") from None

    def _page(self, runtime: str, position: int) -> Sequence[tuple[int, bytes]]:
        wanted = (EVENTS.c.runtime == runtime) & (EVENTS.c.position >= position)
        rows = (
            select(EVENTS.c.position, EVENTS.c.event).where(wanted).order_by(EVENTS.c.position).limit(_PAGE)
        )
        with explained(self.place), self._engine.connect() as connection:
            return [(row.position, row.event) for row in connection.execute(rows)]

    def close(self) -> None:
        """Closing twice is fine."""
        self._engine.dispose()


class HistoryStore:
    """The history of one runtime. For one thread at a time. The last process to open it is its only writer."""

    def __init__(self, place: str | Path, runtime: str) -> None:
        """place: the path of a SQLite file, made if need be, or a URL of SQLAlchemy. runtime: whose history.

        Raises HistoryUnavailableError for what cannot be opened or is no database, NewerHistoryError,
        HistoryTakenError for a file whose history another process writes, UsageError for a bad URL.
        """
        self.runtime = runtime
        self._url = _url(place)
        self._writer = uuid.uuid4().hex
        path = self._url.database if self._url.get_backend_name() == "sqlite" else None
        self._lock = WriterLock(Path(path)) if path and path != ":memory:" else None
        try:
            with self._explained():
                self._engine = _engine(self._url)
                self._reader = StoredHistories(self._engine, self.place)
                self.id = self._claim()
        except BaseException:
            self._unlock()
            raise

    @property
    def place(self) -> str:
        """The place, for messages: without a password."""
        return self._url.database or "" if self._lock else self._url.render_as_string()

    def events(self) -> Iterator[Event]:
        """All events, from the first on. Raises HistoryUnavailableError for a damaged database."""
        return self._reader.events(self.runtime)

    def find(
        self,
        *,
        author: str | None = None,
        since: float | None = None,
        until: float | None = None,
        location: Location | None = None,
    ) -> list[int]:
        """Numbers of the steps that match, in the order in which they ended. location: read or written."""
        query = select(STEPS.c.number).where(STEPS.c.runtime == self.runtime).order_by(STEPS.c.position)
        if author is not None:
            query = query.where(STEPS.c.author == author)
        if since is not None:
            query = query.where(STEPS.c.started >= since)
        if until is not None:
            query = query.where(STEPS.c.started < until)
        if location is not None:
            used = select(LOCATIONS.c.number).where(
                (LOCATIONS.c.runtime == self.runtime) & (LOCATIONS.c.location == _key(location))
            )
            query = query.where(STEPS.c.number.in_(used))
        with self._explained(), self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def size(self) -> int:
        """Number of events."""
        return self._reader.size(self.runtime)

    def write(self, added: Sequence[tuple[int, Event]], shed: Sequence[tuple[int, StepRecord]] = ()) -> None:
        """Writes all of it, or nothing. Raises HistoryTakenError once another writer has opened it."""
        steps = [(position, each) for position, each in added if isinstance(each, StepRecord)]
        with self._explained(), self._transaction() as connection:
            self._check_still_ours(connection)
            _insert(connection, EVENTS, (self._event_row(position, each) for position, each in added))
            _insert(connection, STEPS, (self._step_row(position, record) for position, record in steps))
            _insert(
                connection, LOCATIONS, (row for _, record in steps for row in self._location_rows(record))
            )
            for position, record in shed:
                where = (EVENTS.c.runtime == self.runtime) & (EVENTS.c.position == position)
                connection.execute(update(EVENTS).where(where).values(event=from_event(record)))

    def close(self) -> None:
        """Closing twice is fine."""
        self._engine.dispose()
        self._unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the database --

    def _claim(self) -> str:
        """Makes this process the writer. Gives the id of the history."""
        with self._transaction() as connection:
            if self._lock is None:
                self._wait_for_others(connection)
            METADATA.create_all(connection)
            found = connection.execute(select(SCHEMA.c.version)).scalar()
            if found is None:
                connection.execute(insert(SCHEMA).values(version=VERSION))
            elif found > VERSION:
                raise NewerHistoryError(self.place, found, VERSION)
            elif found < VERSION:
                connection.execute(update(SCHEMA).values(version=VERSION))
            ours = HISTORIES.c.runtime == self.runtime
            known = connection.execute(select(HISTORIES.c.id).where(ours)).scalar()
            if known is not None:
                connection.execute(update(HISTORIES).where(ours).values(writer=self._writer))
                return str(known)
            fresh = {"runtime": self.runtime, "id": uuid.uuid4().hex, "writer": self._writer}
            connection.execute(insert(HISTORIES).values(fresh))
            return fresh["id"]

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._lock is not None:
            self._lock.check_file()
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SET LOCAL statement_timeout = {_STATEMENT}"))
            yield connection

    def _wait_for_others(self, connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_ONE_CLAIM)))

    def _check_still_ours(self, connection: Connection) -> None:
        """An update, not a query: its lock keeps another process from claiming the history in the middle."""
        ours = (HISTORIES.c.runtime == self.runtime) & (HISTORIES.c.writer == self._writer)
        if connection.execute(update(HISTORIES).where(ours).values(writer=self._writer)).rowcount != 1:
            raise HistoryTakenError(self.place)

    def _event_row(self, position: int, each: Event) -> Mapping[str, object]:
        return {"runtime": self.runtime, "position": position, "event": from_event(each)}

    def _step_row(self, position: int, record: StepRecord) -> Mapping[str, object]:
        return {
            "runtime": self.runtime,
            "number": record.number,
            "position": position,
            "parent": record.parent,
            "kind": record.kind,
            "status": record.status,
            "author": record.author,
            "started": record.started,
        }

    def _location_rows(self, record: StepRecord) -> Iterator[Mapping[str, object]]:
        reads = record.trace.reads if record.trace is not None else ()
        for was_written, locations in (
            (0, {located(record, each) for each in reads}),
            (1, set(written(record))),
        ):
            for location in locations:
                yield {
                    "runtime": self.runtime,
                    "location": _key(location),
                    "number": record.number,
                    "written": was_written,
                }

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.place)


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turns failures of a database into a HistoryUnavailableError that says where."""
    try:
        yield
    except ImportError as error:
        reason = str(MissingExtraError("the database's driver", "postgresql", str(error)))
        raise HistoryUnavailableError(place, reason) from error
    except (SQLAlchemyError, OSError) as error:
        raise HistoryUnavailableError(place, str(error.__cause__ or error)) from error


def _key(location: Location) -> str:
    """The location itself, or a substitute for one that no index takes: a very long one, or one with a NUL."""
    if len(location) <= _KEY and "\0" not in location:
        return location
    digest = hashlib.sha256(location.encode()).hexdigest()
    return f"{location[: _KEY - 100].replace(chr(0), '')}#{digest}"


def _insert(connection: Connection, table: object, rows: Iterable[Mapping[str, object]]) -> None:
    from sqlalchemy import Table

    assert isinstance(table, Table)
    if values := list(rows):
        connection.execute(insert(table), values)


def _url(place: str | Path) -> URL:
    if not isinstance(place, str | Path) or not str(place):
        raise UsageError(f"a history is a file or the URL of a database, not {place!r}")
    if isinstance(place, Path) or "://" not in place:
        check_path(str(place))
        return URL.create("sqlite", database=str(Path(place).absolute()))
    try:
        url = make_url(place)
    except ArgumentError as error:
        raise UsageError(f"{place!r} is neither a path nor the URL of a database: {error}") from None
    # SQLAlchemy's own default is the driver before the one that is Cenote's extra.
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        # A server has a hundred connections in all: an idle runtime must not hold one.
        terms = _SERVER if url.drivername in ("postgresql+psycopg", "postgresql+psycopg2") else {}
        given = {name: value for name, value in terms.items() if name not in url.query}
        return create_engine(url, poolclass=NullPool, connect_args=given)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: object, _record: object) -> None:
        assert isinstance(connection, sqlite3.Connection)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "trusted_schema = OFF"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _read_only(path: Path) -> Engine:
    """Raises OSError for a file that is not there."""
    path.stat()

    def connect() -> sqlite3.Connection:
        # Without that file there is no writer, and SQLite would leave files of its own beside the database.
        terms = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?{terms}", uri=True, timeout=_BUSY_SECONDS, check_same_thread=False
        )
        for pragma in ("trusted_schema = OFF", "query_only = ON"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)
