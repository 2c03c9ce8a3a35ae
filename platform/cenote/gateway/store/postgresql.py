"""The gateway's database in PostgreSQL.

A transaction locks the database's schema for other writers, so that transactions are serial, as in a SQLite file:
callers rely on that. The next call reopens a broken connection. The durability of a commit depends on the server's
settings. Waiting for a server that neither answers nor closes the connection is limited by a clock of this process,
since the server's may stand still.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from cenote.gateway.errors import DatabaseUnavailableError, DuplicateRowError
from cenote.gateway.store.session import Value
from cenote_security.errors import UsageError
from cenote_security.extras import importing
from cenote_worker.process.patient_wait import PatientWait

_LOOKS: Final = 4
"""Checks of a silent connection before it is cut. Counted instead of timed: a pause of the whole machine is one
check, and gave the server no time to answer.
"""


class ConnectionWatchdog:
    """Watches one connection at a time. A caller that waits on one that is cut sees it closed by the other side."""

    def __init__(self, patience: float) -> None:
        """patience: seconds for one answer, and up to a quarter more, so that watching costs the caller nothing."""
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: tuple[int, int] | None = None
        """The socket, and the number of checks that it has left."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="cenote-line-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def over(self, descriptor: int) -> Iterator[None]:
        """The body waits for the other side of this socket."""
        with self._lock:
            self._waiting = (descriptor, _LOOKS)
        try:
            yield
        finally:
            with self._lock:
                self._waiting = None

    def close(self) -> None:
        """Closing twice is fine."""
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._closed.wait(self._patience / _LOOKS):
            with self._lock:
                self._waiting = _looked_at(self._waiting)


def _looked_at(waiting: tuple[int, int] | None) -> tuple[int, int] | None:
    """Counts one check; None when no caller waits any more."""
    if waiting is None:
        return None
    descriptor, left = waiting
    if left:
        return descriptor, left - 1
    return None if _cut(descriptor) else waiting


def _cut(descriptor: int) -> bool:
    """Returns False where the next check has to try again."""
    try:
        line = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # this process has no free descriptor
        return False
    with line, suppress(OSError):  # the other side has closed it just now
        line.shutdown(socket.SHUT_RDWR)
    return True


with importing("a driver for records in PostgreSQL", "postgresql"):
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.rows import DictRow, dict_row

PATIENCE: Final = 20.0
"""Seconds for one answer of the server."""

CLAIM_SECONDS: Final = 3.0
"""Seconds for the server to end a former gateway's connection, after its process has ended."""

_LOOK_EVERY: Final = 0.05

_SETTINGS: Final = (
    "-c lock_timeout=5s -c statement_timeout=15s "
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)
"""Transactions take milliseconds. A gateway that lost its connection must not keep its claim for hours."""

_TERMS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "tcp_user_timeout": 20_000,
    "client_encoding": "utf8",
    "application_name": "cenote",
}
"""For libpq. It has no setting for a connected server that does not answer; ConnectionWatchdog handles that."""

_WRITERS: Final = 0x63656E6F
_GATEWAY: Final = 0x63656E70
"""PostgreSQL's locks have two numbers; the other is the schema's, since several platforms may share a database."""

_NUL: Final = "\0"
_ESCAPE: Final = "\x1a"
"""Texts in PostgreSQL cannot contain NUL, and printed output may. So both are encoded as two characters."""

_REMEDIES: Final = (
    (errors.DiskFull, "make room for the server, and try again"),
    (errors.QueryCanceled, "the server is slow, or another client holds a lock there; try again"),
    (errors.LockNotAvailable, "another process of the platform writes; try again"),
    (errors.ReadOnlySqlTransaction, "name the primary server with `cenote up --database`"),
    (errors.InsufficientPrivilege, "let its user make tables in its schema"),
)


class PostgresqlSession:
    """See DatabaseSession."""

    def __init__(self, url: str) -> None:
        """Connects. Raises UsageError unless it is a PostgreSQL URL, DatabaseUnavailableError."""
        self._url = _driverless(url)
        self._place = _shown(self._url)
        self._claimed = False
        self._connection: psycopg.Connection[DictRow] | None = None
        self._watch = ConnectionWatchdog(PATIENCE)
        self._closed = False
        try:
            self._connected()
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        return self._place

    @property
    def in_transaction(self) -> bool:
        connection = self._connection
        idle = psycopg.pq.TransactionStatus.IDLE
        return connection is not None and not connection.closed and connection.info.transaction_status != idle

    def begin(self) -> None:
        lock = f"SELECT pg_advisory_xact_lock({_WRITERS}, hashtext(current_schema()))"
        try:
            self._again_if_lost(f"BEGIN; {lock}", None)
        except DatabaseUnavailableError:
            if self.in_transaction:
                self.rollback()
            raise

    def commit(self) -> None:
        self._execute("COMMIT", None)

    def rollback(self) -> None:
        self._execute("ROLLBACK", None)

    def run(self, sql: str, values: Sequence[Value]) -> int:
        """Outside a transaction the statement is one by itself, and also waits for the lock."""
        if self.in_transaction:
            return self._execute(_placed(sql), _given(values)).rowcount
        self.begin()
        try:
            changed = self._execute(_placed(sql), _given(values)).rowcount
            self.commit()
        except BaseException:
            if self.in_transaction:
                self.rollback()
            raise
        return changed

    def rows(self, sql: str, values: Sequence[Value]) -> list[dict[str, Any]]:
        execute = self._execute if self.in_transaction else self._again_if_lost
        found = execute(_placed(sql), _given(values))
        with self._explained():
            return [{name: _taken(value) for name, value in row.items()} for row in found.fetchall()]

    def claim(self) -> None:
        self._claimed = True
        self._take_claim(self._connected())

    def close(self) -> None:
        self._closed = True
        self._watch.close()
        if self._connection is not None:
            self._connection.close()

    def _again_if_lost(self, sql: str, values: Sequence[Value] | None) -> psycopg.Cursor[DictRow]:
        """For statements that change nothing: a restarted server has closed the connection."""
        was_there = self._connection is not None
        try:
            return self._execute(sql, values)
        except DatabaseUnavailableError:
            if not was_there or self._connection is not None:
                raise
            return self._execute(sql, values)

    def _execute(self, sql: str, values: Sequence[Value] | None) -> psycopg.Cursor[DictRow]:
        connection = self._connected()
        with self._explained(), self._watch.over(connection.fileno()):
            return connection.execute(sql, values)

    def _connected(self) -> psycopg.Connection[DictRow]:
        if self._closed:
            raise DatabaseUnavailableError(self.place, "it is closed")
        if self._connection is None:
            with self._explained():
                connection = psycopg.connect(
                    self._url, **_terms(self._url), autocommit=True, row_factory=dict_row
                )
            if self._claimed:
                self._take_claim(connection)
            self._connection = connection
        return self._connection

    def _take_claim(self, connection: psycopg.Connection[DictRow]) -> None:
        """PostgreSQL releases it when the connection ends, for whatever reason."""
        wait = PatientWait(CLAIM_SECONDS)
        while not self._has_claim(connection):
            if not wait.piece():
                connection.close()
                raise DatabaseUnavailableError(
                    self.place,
                    "another platform works with it",
                    "end that one, or give this one a database of its own; a platform that has just lost its machine "
                    "holds on to it for half a minute",
                )
            time.sleep(_LOOK_EVERY)

    def _has_claim(self, connection: psycopg.Connection[DictRow]) -> bool:
        with self._explained(), self._watch.over(connection.fileno()):
            lock = f"SELECT pg_try_advisory_lock({_GATEWAY}, hashtext(current_schema())) AS ours"
            row = connection.execute(lock).fetchone()
        return row is not None and bool(row["ours"])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except errors.IntegrityError as error:
            raise DuplicateRowError(_reason(error)) from None
        except psycopg.Error as error:
            connection = self._connection
            if connection is not None and connection.closed:
                self._connection = None
            remedy = next((words for kind, words in _REMEDIES if isinstance(error, kind)), "")
            raise DatabaseUnavailableError(self.place, _reason(error), remedy) from None


def _driverless(url: str) -> str:
    """The URL in libpq's form, without SQLAlchemy's driver. Raises UsageError for another scheme."""
    if not re.match(r"postgres(ql)?(\+\w+)?://", url):
        raise UsageError(
            "a database is named by a URL such as postgresql://user@host/name; "
            "without one the platform keeps its records in a file"
        )
    plain = re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", url)
    try:
        conninfo_to_dict(plain)
    except psycopg.Error as error:
        raise UsageError(f"the URL of the database cannot be read: {_reason(error)}") from None
    return plain


def _shown(url: str) -> str:
    """For people: without a password."""
    parts = conninfo_to_dict(url)
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _terms(url: str) -> dict[str, Any]:
    given = conninfo_to_dict(url)
    options = f"{_SETTINGS} {given.get('options', '')}".strip()
    return {name: value for name, value in _TERMS.items() if name not in given} | {"options": options}


def _placed(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _given(values: Sequence[Value]) -> list[Value]:
    return [_escaped(value) if isinstance(value, str) else value for value in values]


def _escaped(text: str) -> str:
    if _NUL not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}1").replace(_NUL, f"{_ESCAPE}0")


def _taken(value: Any) -> Any:
    if not isinstance(value, str) or _ESCAPE not in value:
        return value
    return value.replace(f"{_ESCAPE}0", _NUL).replace(f"{_ESCAPE}1", _ESCAPE)


def _reason(error: psycopg.Error) -> str:
    """The first line of the error: others repeat the statement."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
