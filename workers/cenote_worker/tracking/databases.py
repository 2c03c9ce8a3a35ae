"""What databases have given, as descriptions. Connections and cursors cannot be looked into."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.graph import Graph, Handler

__builtins__ = BUILTINS

if TYPE_CHECKING:
    import sqlite3


def handlers(sqlite: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported `sqlite3`."""
    return {sqlite.Row: _row}


def _row(graph: Graph, value: sqlite3.Row) -> object:
    graph.stay("a row of a database cannot be pickled")
    return (value.keys(), graph.tokens(tuple(value)))
