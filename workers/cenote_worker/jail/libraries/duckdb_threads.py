"""DuckDB's threads, ended before a fork and started again after it: in the process, and in copies that continue.

A database has as many threads as its settings say, so any connection to it can end them. The settings are changed
through a cursor, which is a connection of its own: a statement of ours would show in a transaction, or replace a
result that is being fetched. Databases that two processes would write to keep their threads, and so prevent a fork:
those with files, and those that have put some of their memory on disk.
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

# By their full names: a user may have macros and tables with the same names.
_DATABASES: Final = "select path, type from system.main.duckdb_databases()"
_ON_DISK: Final = "select path from system.main.duckdb_temporary_files()"
_SETTING: Final = "system.main.current_setting('{}')"

_LOGS: Final = "enable_logging", "log_query_path"
_WITHOUT: Final = {"threads": 1, "async_threads": 0}
"""For each setting, the value with no thread but the calling one. DuckDB 1 lacks the second setting."""


class DuckdbThreads:
    """The threads of one process's databases, if a connection to them has been met."""

    def __init__(self) -> None:
        self._ended: list[tuple[Any, Mapping[str, int]]] = []
        """A cursor, and the number of threads to restore for its database."""
        self._logged: WeakSet[Any] = WeakSet()
        """Connections to databases with logging: each statement of ours would be in the log."""

    def end(self) -> bool:
        """Called between cells, with no other thread of Python code. False if some threads stay. Never raises."""
        return all(map(self._try_to_end, duckdb_connections.connections()))

    def end_default(self) -> None:
        """Also for the database of the module's functions, which is made if there is none. Never raises."""
        with suppress(Exception):  # a cell may have changed the library
            self._try_to_end(duckdb_connections.default_connection())

    def begin_again(self) -> None:
        """Called before any user code runs. Never raises: what could not be started is tried again the next time."""
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
        except Exception:  # a version with a different interface, or memory is short
            return False
        return True

    def _end(self, cursor: Any) -> None:
        """Raises any error of DuckDB."""
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
    """The number of threads by setting, for the settings that this version of DuckDB has."""
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
