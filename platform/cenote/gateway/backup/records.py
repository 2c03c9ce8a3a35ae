"""The rows of a database as text, in a form that both databases can be filled from: one JSON object a line.

So a backup of a platform with a file can be restored into PostgreSQL, and the other way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Final

from cenote.gateway.store.database import Database
from cenote.gateway.store.schema import TABLES
from cenote.gateway.store.session import Value
from cenote_security.errors import MalformedValueError

_AT_ONCE: Final = 100
"""Rows of one question: some have results of some megabytes."""

_COLUMN: Final = re.compile(r"[a-z_]{1,40}")

Row = Mapping[str, Value]


def dump(database: Database, table: str) -> Iterator[bytes]:
    """A line for each row, in the order of the primary key."""
    key = TABLES[table]
    names, marks = ", ".join(key), ", ".join("?" * len(key))
    after, where = (), ""
    while True:
        sql = f"SELECT * FROM {table}{where} ORDER BY {names} LIMIT {_AT_ONCE}"  # noqa: S608  (names from here)
        rows = [{name: row[name] for name in row.keys()} for row in database.rows(sql, *after)]  # noqa: SIM118  (no mapping)
        for row in rows:
            yield json.dumps(row).encode() + b"\n"
        if len(rows) < _AT_ONCE:
            return
        after, where = tuple(rows[-1][name] for name in key), f" WHERE ({names}) > ({marks})"


def load(table: str, lines: IO[bytes], takes: Callable[[str, Row], bool]) -> Iterator[tuple[str, Row]]:
    """The rows of a table, for `FormerRows`. takes: which ones. Raises MalformedValueError."""
    if table not in TABLES:
        raise MalformedValueError(f"there is no table {table!r:.60}")
    for line in lines:
        row = _row(line)
        if takes(table, row):
            yield table, row


def _row(line: bytes) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedValueError("a row is no JSON") from None
    if not isinstance(row, dict) or not all(_COLUMN.fullmatch(name) for name in row):
        raise MalformedValueError("a row is no row of a table")
    if not all(type(value) in (str, int, float, type(None)) for value in row.values()):
        raise MalformedValueError("a row has a value that no column has")
    return row
