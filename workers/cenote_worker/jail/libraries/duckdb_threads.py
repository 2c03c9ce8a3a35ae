"""DuckDB's threads, ended before a fork and begun again behind it: in the process, and in copies that go on.

A database has as many as its settings say, so any connection to it can have them ended. It is asked through a cursor,
which is a connection of its own: a statement of ours would be seen in a transaction, or in the place of a result that
is being fetched. Databases that two processes would write to keep their threads, and so forbid a fork: those with
files, and those that have put some of their memory on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from cenote_worker.jail.tracking.libraries import duckdb_connections
from cenote_worker.jail.tracking.libraries.duckdb_connections import call
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

# By their full names: a user may have macros and tables with the same.
_DATABASES: Final = "select path, type from system.main.duckdb_databases()"
_ON_DISK: Final = "select path from system.main.duckdb_temporary_files()"
_SETTING: Final = "system.main.current_setting('{}')"

_LOGS: Final = "enable_logging", "log_query_path"
_WITHOUT: Final = {"threads": 1, "async_threads": 0}
"""Of each setting, the value at which it has no thread but the one that asks. DuckDB 1 lacks the second."""


class DuckdbThreads:
    """Of the databases of one process, as far as a connection to them has been met."""

    def __init__(self) -> None:
        self._ended: list[tuple[Any, Mapping[str, int]]] = []
        """A cursor, and how many threads its database is to have again."""
        self._logged: WeakSet[Any] = WeakSet()
        """Connections to databases that write down what they are asked: each question would be there."""

    def end(self) -> bool:
        """Between cells, with no other thread of Python code. False where some are there to stay. Never raises."""
        return all(map(self._try_to_end, duckdb_connections.connections()))

    def end_default(self) -> None:
        """Also of the database that functions of the module use, which is made if there is none. Never raises."""
        with suppress(Exception):  # a cell may have changed the library
            self._try_to_end(duckdb_connections.default_connection())

    def begin_again(self) -> None:
        """Before anything of the user's runs. Never raises: what could not be begun is tried again the next time."""
        ended, self._ended = self._ended, []
        for cursor, threads in ended:
            try:
                _set(cursor, threads)
                call(cursor, "close")
            except Exception:
                self._ended.append((cursor, threads))

    def _try_to_end(self, connection: Any) -> bool:
        if connection in self._logged:
            return False
        try:
            cursor = call(connection, "cursor")
        except Exception:  # it was closed
            return True
        try:
            *logs, locked = _settings(cursor, *_LOGS, "lock_configuration")
            if any(logs):
                self._logged.add(connection)
            if any(logs) or locked or not _is_in_memory(cursor):
                return False
            self._end(cursor)
        except Exception:  # a version that has something of this otherwise, or there is no memory left
            return False
        return True

    def _end(self, cursor: Any) -> None:
        """Raises whatever DuckDB does."""
        threads = _threads(cursor)
        without = {each: _WITHOUT[each] for each in threads}
        if threads != without:
            self._ended.append((cursor, threads))
            _set(cursor, without)


THREADS: Final = DuckdbThreads()


def _is_in_memory(cursor: Any) -> bool:
    held = all(path is None and kind == "duckdb" for path, kind in _asked(cursor, _DATABASES))
    return held and not _asked(cursor, _ON_DISK)


def _threads(cursor: Any) -> dict[str, int]:
    """By setting, as far as this version of DuckDB has it."""
    try:
        return dict(zip(_WITHOUT, _settings(cursor, *_WITHOUT), strict=True))
    except Exception:
        return {"threads": _settings(cursor, "threads")[0]}


def _settings(cursor: Any, *names: str) -> tuple[Any, ...]:
    return _asked(cursor, f"select {', '.join(map(_SETTING.format, names))}")[0]


def _set(cursor: Any, values: Mapping[str, int]) -> None:
    for name, value in values.items():
        call(cursor, "execute", f"set {name} = {value}")


def _asked(cursor: Any, question: str) -> list[tuple[Any, ...]]:
    call(cursor, "execute", question)
    found: list[tuple[Any, ...]] = call(cursor, "fetchall")
    return found
