"""Rows of `sqlite3` on their way through a pickle."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules


def reduced_row(obj: Any) -> tuple[Any, ...] | None:
    """How to pickle a row, as `reducer_override` gives it; None for any other object."""
    sqlite = _modules.get("sqlite3")
    if sqlite is None or type(obj) is not sqlite.Row:
        return None
    return made_row, (tuple(obj.keys()), tuple(obj))


def made_row(keys: tuple[str, ...], values: tuple[object, ...]) -> object:
    """A row takes its keys from a cursor, which takes them from a query."""
    sqlite = importlib.import_module("sqlite3")
    quoted = (key.replace('"', '""') for key in keys)
    named = ", ".join(f'null as "{key}"' for key in quoted)
    connection = sqlite.connect(":memory:")
    try:
        return sqlite.Row(connection.execute(f"select {named}"), values)
    finally:
        connection.close()
