"""The content of DuckDB's databases, judged by the queries sent to it.

A database in memory cannot be inspected without running queries in it. So all databases of the process have one mark,
which changes with each step that may have changed any of them; and the one that functions of the module use is an
attribute of the module. The names that a query looks up are in its text: a table that DuckDB does not have may be a
name of the user's.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Set
from types import ModuleType
from typing import Any, Final

from cenote_worker.execution.trace import DATABASES
from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.code.sql_queries import METHODS, names_in, only_asks
from cenote_worker.jail.tracking.descriptions.extension_objects import IdentityTokens
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph
from cenote_worker.jail.tracking.process_state.modules import is_unknown
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

HOME: Final = "duckdb"
PACKAGES: Final = frozenset((HOME, "_duckdb"))
_HANDING_ON: Final = ("read_sql", "to_sql", "read_database", "write_database", "getattr", "methodcaller")

_ONLY_ASKING: Final = METHODS | {
    "alias", "any_value", "arg_max", "arg_min", "array_type", "avg", "bool_and", "bool_or", "build_info", "cast",
    "col", "columns", "connect", "count", "cross", "dense_rank", "describe", "distinct", "dtypes", "except_",
    "explain", "first", "first_value", "from_arrow", "from_csv_auto", "from_df", "from_parquet", "group_by", "head",
    "intersect", "lag", "last", "last_value", "lead", "limit", "list", "lit", "max", "mean", "median", "min",
    "mode", "n_tile", "nth_value", "percent_rank", "preview", "product", "quantile", "quantile_cont",
    "quantile_disc", "rank", "read_csv", "read_json", "read_parquet", "rename", "row_number", "select_dtypes",
    "select_types", "set_alias", "shape", "show", "sort", "sql_query", "star", "std", "stddev", "stddev_pop",
    "stddev_samp", "string_agg", "sum", "to_df", "to_dicts", "type", "types", "union", "union_by_name", "unique",
    "unnest", "value_counts", "values", "var", "var_pop", "var_samp", "variance", "version", "with_columns",
}  # fmt: skip
"""Of its functions, and of methods of its connections and relations, those that change no database by themselves."""

_TELLING: Final = "2.0."
_random = os.urandom
_modules = sys.modules
_doing = set[str]()
"""The other functions and methods. Those that a later version of DuckDB adds are among them."""
_stamps: Final = IdentityTokens()
_calls = dict[str, Callable[..., Any]]()
"""Methods of a connection and functions of the module, saved before a cell could change them."""
_CALLED: Final = "cursor", "execute", "fetchall", "close"


class _Mark:
    def __init__(self) -> None:
        self.text = ""
        self.has_sequences = False


_mark: Final = _Mark()


def is_met(packages: Set[str]) -> bool:
    return not PACKAGES.isdisjoint(packages)


def changed() -> None:
    """Called when a step may have changed any database, or a connection's next result."""
    _mark.text = _random(8).hex()


def mark() -> str:
    """Empty until something has changed."""
    return _mark.text


def may_change(facts: Facts, libraries: Set[str]) -> bool:
    """Whether the code, which uses DuckDB, may do more than read. libraries: those that it reaches. It may have
    passed a connection to an unknown one. Once there may be sequences, a query may draw from them."""
    _mark.has_sequences = _mark.has_sequences or facts.sequences
    if _mark.has_sequences and facts.asks:
        return True
    words = facts.attributes | facts.loads
    if not _doing.isdisjoint(words) or any(word.startswith(_HANDING_ON) for word in words):
        return True
    if any(is_unknown(library) for library in libraries - PACKAGES):
        return True
    return not all(ask.text is not None and only_asks(ask.text) for ask in facts.asks)


def leaves_results(facts: Facts) -> bool:
    """Whether a later fetch from a connection may give another result than before."""
    return any(ask.leaves for ask in facts.asks)


def fetches(facts: Facts) -> bool:
    """Whether the code takes results that another step may have left."""
    return any(ask.fetches for ask in facts.asks)


def tells_of_looking() -> bool:
    """Whether this version of DuckDB is known to ask `inspect` for a frame before it looks any name up."""
    return str(getattr(_modules.get(HOME), "__version__", "")).startswith(_TELLING)


def looked_up(facts: Facts) -> frozenset[str] | None:
    """Names that its queries may look up in the namespace; None if these may be any."""
    texts = [ask.text for ask in facts.asks if not ask.fetches]
    if None in texts:
        return None
    return frozenset[str]().union(*(names_in(text) for text in texts if text is not None))


def connections() -> list[Any]:
    """All connections that were met and are alive."""
    return _stamps.holders()


def default_connection() -> Any:
    """The connection of the module's functions, which is made if there is none. Raises KeyError if DuckDB was not
    met."""
    return _calls["default_connection"]()


def call(connection: Any, method: str, *given: object) -> Any:
    """Raises any error of DuckDB."""
    return _calls[method](connection, *given)


def handlers(duckdb: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported DuckDB."""
    spoken = {*dir(duckdb), *dir(duckdb.DuckDBPyConnection), *dir(duckdb.DuckDBPyRelation)}
    functions = {
        each for each in spoken if each[:1] != "_" and not isinstance(getattr(duckdb, each, None), type)
    }
    _doing.update(functions - _ONLY_ASKING - vars(builtins).keys())
    _calls.update({each: getattr(duckdb.DuckDBPyConnection, each) for each in _CALLED})
    _calls["default_connection"] = duckdb.default_connection
    return {duckdb.DuckDBPyConnection: _connection}


def _connection(graph: ObjectGraph, value: Any) -> object:
    graph.changeable(value)
    graph.packages.add(HOME)
    graph.refer(DATABASES)
    graph.sealed = True
    graph.stay("a connection of DuckDB does not tell what it holds")
    return (_stamps.of(value, None), mark())
