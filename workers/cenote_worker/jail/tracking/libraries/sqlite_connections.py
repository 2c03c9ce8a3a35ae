"""Connections of `sqlite3`, and their rows and cursors, as descriptions.

A database cannot be inspected without running queries in it. But a connection keeps the texts of its last statements,
in the order of use, and counts them: so it shows whether and with which texts it was used since the last look. One
that only ran queries is unchanged.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Set
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.code.sql_queries import asks_for_chance, only_asks
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph
from cenote_worker.jail.tracking.descriptions.standard import CACHE
from cenote_worker.jail.tracking.process_state.modules import is_unknown
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

if TYPE_CHECKING:
    import sqlite3

_referents, _random = gc.get_referents, os.urandom
_STATEMENT: Final = "Statement"
_LEGACY: Final = -1
"""Of `autocommit`: transactions begin as before Python 3.12, with the first change."""

_SETTINGS: Final = ("isolation_level", "autocommit", "in_transaction", "total_changes")

_HANDING: Final = frozenset(
    ("create_aggregate", "create_collation", "create_function", "create_window_function", "set_authorizer",
     "set_progress_handler", "set_trace_callback", "getattr", "methodcaller", "attrgetter")
)  # fmt: skip
"""Methods of a connection that take a function to call, which need not be the user's: a method of a user's list does
as well. Also ways to call a method by a computed name."""

_DOING: Final = _HANDING | {
    "backup", "blobopen", "deserialize", "enable_load_extension", "executescript", "interrupt", "load_extension",
    "setconfig", "setlimit",
}  # fmt: skip
"""Methods of a connection that change it, or its database, without a statement that it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """A connection at the last look. cache: of its statements, which is gone when the connection is. asked: how many
    statements it ran. texts: in the order of their last use. others: its other visible state."""

    cache: weakref.ref[Any]
    asked: int
    texts: tuple[str, ...]
    others: tuple[object, ...]
    stamp: str


class Connections:
    """A stamp for each connection that was looked at, which changes when the connection may have changed."""

    def __init__(self) -> None:
        self._known: dict[int, _Mark] = {}
        self._disturbed = 0
        self._chance = False

    def disturb(self) -> None:
        """Called after a change that no connection shows: all connections count as changed at the next look."""
        self._disturbed += 1

    def asked_for_chance(self) -> bool:
        """Whether a statement since the last call of this may give another result each time."""
        asked, self._chance = self._chance, False
        return asked

    def stamp(self, value: sqlite3.Connection) -> str:
        """Empty if it does not show its statements."""
        found = [each for each in _referents(value) if type(each) is CACHE]
        if len(found) != 1 or any(map(_is_pending, _dependents(value))):
            return ""
        cache: Any = found[0]
        told = cache.cache_info()
        texts = tuple(each for each in _referents(cache) if type(each) is str)
        others = tuple(getattr(value, key, None) for key in _SETTINGS)
        others += (id(value.row_factory), id(value.text_factory), self._disturbed)
        if not _shows_transactions(value, texts, kept=told.currsize < (told.maxsize or 0)):
            return ""
        known, asked = self._known.get(id(value)), told.hits + told.misses
        if (
            known is not None and known.cache() is not cache
        ):  # the former one belongs to a connection that has gone, at the same address
            known = None
        times = asked - (known.asked if known is not None else 0)
        # Each statement since is among the last ones, unless so many came that some have been evicted.
        seen = not times or 0 < times < told.maxsize
        latest = texts[-times:] if times and seen else ()
        self._chance |= not seen or any(map(asks_for_chance, latest))
        same = known is not None and known.others == others and seen and all(map(only_asks, latest))
        stamp = known.stamp if known is not None and same else _random(8).hex()
        key, table = id(value), self._known
        gone = weakref.ref(cache, lambda _: table.pop(key, None))
        self._known[key] = _Mark(cache=gone, asked=asked, texts=texts, others=others, stamp=stamp)
        return stamp


def _shows_transactions(value: sqlite3.Connection, texts: tuple[str, ...], *, kept: bool) -> bool:
    """Whether a query in a transaction changes nothing, and a rollback shows.

    A transaction that the user's own statement began fixes its view of the data at its first query; others, which
    begin with a change, show everything. If they follow each other without a gap, nothing shows a rollback. kept: all
    texts that the connection ran are still there.
    """
    if getattr(value, "autocommit", _LEGACY) not in (_LEGACY, True):
        return False
    begun = any(text.lstrip().lower().startswith(("begin", "savepoint")) for text in texts)
    return not value.in_transaction or (kept and not begun and value.isolation_level is not None)


def _dependents(value: sqlite3.Connection) -> list[object]:
    """Its cursors and blobs that are alive."""
    lists = [each for each in _referents(value) if type(each) is list]
    known = [each for inner in lists for each in inner if isinstance(each, weakref.ReferenceType)]
    return [held for each in known if (held := each()) is not None]


def _is_pending(dependent: object) -> bool:
    """Whether a cursor has more rows. It has a statement until the last row is fetched; a blob is never finished."""
    return type(dependent).__name__ == "Blob" or any(
        type(each).__name__ == _STATEMENT for each in _referents(dependent)
    )


CONNECTIONS: Final = Connections()


def look_for_more(facts: Facts, libraries: Set[str]) -> None:
    """Called before connections are looked at after a step that ran this code. It may have passed one to an unknown
    library."""
    if "sqlite3" in libraries and (
        not _DOING.isdisjoint(facts.attributes | facts.loads) or any(map(is_unknown, libraries))
    ):
        CONNECTIONS.disturb()


def hands_on(facts: Facts) -> bool:
    """Whether the code may give a connection a function to call."""
    return not _HANDING.isdisjoint(facts.attributes | facts.loads)


def handlers(sqlite: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported `sqlite3`."""
    return {sqlite.Row: _row, sqlite.Connection: _connection(sqlite), sqlite.Cursor: _cursor}


def _row(graph: ObjectGraph, value: sqlite3.Row) -> object:
    return (value.keys(), graph.tokens(tuple(value)))


def _connection(sqlite: ModuleType) -> Callable[[ObjectGraph, Any], object]:
    def described(graph: ObjectGraph, value: Any) -> object:
        graph.changeable(value)
        graph.packages.add("sqlite3")
        graph.stay("a connection to a database cannot be pickled")
        try:
            stamp = CONNECTIONS.stamp(value)
        except sqlite.ProgrammingError:  # it was closed, or belongs to another thread
            stamp = ""
        if not stamp:
            return graph.follow(value)
        graph.calling = graph.sealed = True
        return (stamp, graph.tokens((value.row_factory, value.text_factory)))

    return described


def _cursor(graph: ObjectGraph, value: Any) -> object:
    """A cursor without more rows has a connection, and data about its last statement."""
    if _is_pending(value):
        return graph.follow(value)
    graph.changeable(value)
    graph.packages.add("sqlite3")
    graph.stay("a cursor of a database cannot be pickled")
    told = (value.description, value.lastrowid, value.rowcount, value.arraysize)
    return graph.tokens((*told, value.row_factory, value.connection))
