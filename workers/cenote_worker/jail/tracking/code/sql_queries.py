"""SQL texts that code passes to a database: which names a query may look up, and whether it only reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from opcode import opmap
from types import CodeType
from typing import Final

from cenote_worker.jail.tracking.code.instructions import instructions
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_TAKING_TEXT: Final = frozenset(
    ("sql", "query", "execute", "executemany", "from_query", "query_df", "table", "view", "table_function",
     "sql_expr", "SQLExpression", "get_table_names", "extract_statements", "filter", "project", "select",
     "aggregate", "order", "join", "set_default_connection")
)  # fmt: skip
_LEAVING_RESULTS: Final = frozenset(("execute", "executemany"))
"""A connection keeps the result of these for a later fetch."""

_FETCHING: Final = frozenset(
    ("fetchone", "fetchmany", "fetchall", "fetchdf", "fetch_df", "fetch_df_chunk", "fetchnumpy",
     "fetch_arrow_table", "fetch_arrow_reader", "fetch_record_batch", "df", "arrow", "pl", "torch", "tf",
     "to_arrow_table", "to_arrow_reader", "description", "rowcount")
)  # fmt: skip
_IN_FULL: Final = frozenset(
    (
        "fetchall",
        "fetchdf",
        "fetch_df",
        "fetchnumpy",
        "fetch_arrow_table",
        "df",
        "arrow",
        "pl",
        "to_arrow_table",
    )
)
_EXPRESSIONS: Final = frozenset(("filter", "order"))
"""Methods of relations that take only part of a query."""

METHODS: Final = _TAKING_TEXT | _FETCHING
"""Names of functions and attributes whose meaning for a query `ask_of` knows."""

_WORD: Final = re.compile(r"[^\W\d]\w*")
_CALLED: Final = re.compile(r"\b\d*+([^\W\d]\w*+)\s*+\(")
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")
# One that is not closed is matched as well: a search for its end, from each place that may begin one, takes n² steps.
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?(?:\*/|(?P<unclosed>\Z))", re.DOTALL)

_KEYWORDS: Final = frozenset(
    ("all", "and", "any", "as", "asc", "between", "by", "case", "cross", "desc", "distinct", "else", "end",
     "except", "exists", "false", "filter", "from", "full", "group", "having", "in", "inner", "intersect",
     "is", "join", "left", "like", "limit", "natural", "not", "null", "offset", "on", "or", "order", "outer",
     "over", "partition", "qualify", "right", "select", "then", "true", "union", "using", "values", "when",
     "where", "window", "with", "within")
)  # fmt: skip
_FIRST: Final = frozenset(("select", "from", "with", "values"))
_CHANGING: Final = frozenset(
    ("alter", "analyze", "attach", "begin", "call", "checkpoint", "commit", "copy", "create", "delete",
     "detach", "drop", "execute", "export", "import", "insert", "install", "into", "load", "merge", "pragma",
     "prepare", "reset", "returning", "rollback", "set", "truncate", "update", "use", "vacuum")
)  # fmt: skip
_REMEMBERED: Final = frozenset(("view", "macro", "function", "prepare", "trigger"))
_PURE: Final = frozenset(
    ("abs", "any_value", "arg_max", "arg_min", "array_agg", "avg", "bool_and", "bool_or", "cast", "ceil",
     "ceiling", "coalesce", "concat", "concat_ws", "contains", "corr", "count", "count_if", "covar_pop",
     "covar_samp", "cume_dist", "date", "datetime", "julianday", "json_extract", "typeof", "date_add",
     "date_diff", "date_part", "date_sub", "date_trunc", "datediff", "day", "dayofweek", "dayofyear",
     "dense_rank", "exp", "extract", "first", "first_value", "floor", "generate_series", "greatest",
     "group_concat", "hour", "ifnull", "instr", "lag", "last", "last_value", "lead", "least", "length",
     "list", "ln", "log", "log10", "log2", "lower", "lpad", "ltrim", "make_date", "max", "max_by", "mean",
     "median", "min", "min_by", "minute", "mod", "mode", "month", "nth_value", "ntile", "nullif",
     "percent_rank", "pow", "power", "printf", "product", "quantile", "quantile_cont", "quantile_disc",
     "quarter", "range", "rank", "read_csv", "read_csv_auto", "read_json", "read_json_auto", "read_parquet",
     "regexp_extract", "regexp_matches", "regexp_replace", "regr_intercept", "regr_r2", "regr_slope",
     "replace", "reverse", "round", "row_number", "rpad", "rtrim", "second", "sign", "split_part", "sqrt",
     "starts_with", "stddev", "stddev_pop", "stddev_samp", "string_agg", "strftime", "strptime", "substr",
     "substring", "sum", "total", "trim", "try_cast", "unnest", "upper", "var_pop", "var_samp", "variance",
     "week", "weekday", "year")
)  # fmt: skip
"""Functions whose result depends on their arguments only, without effects."""

_CHANCE: Final = frozenset(
    ("current_connection_id", "current_date", "current_localtime", "current_localtimestamp", "current_query_id",
     "current_time", "current_timestamp", "current_transaction_id", "duckdb_log_contexts", "duckdb_logs",
     "duckdb_logs_parsed", "get_current_time", "get_current_timestamp", "localtime", "localtimestamp", "now",
     "tablesample", "today", "transaction_timestamp", "txid_current")
)  # fmt: skip
"""Also in quotes: SQLite's functions of time take `'now'`. DuckDB counts and logs the jail's own queries, too."""

_CHANCE_CALLED: Final = re.compile(
    r"\b(?:age|gen_random_uuid|rand|random|randomblob|uuid|uuidv4|uuidv7)[\"'`\]]?\s*\(|\busing\s+sample\b"
)
"""Columns may have these names as well."""

_OF_NOW: Final = re.compile(
    r"\b(?:(?:date|time|datetime|julianday|unixepoch)\s*\(\s*\)|strftime\s*\([^,()]*\))"
)
"""Functions of time in SQLite that are called without a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAccess:
    """One place where code queries a database, or fetches a result.

    text: the query; None if it is built at run time, and for `fetches`. leaves: a later fetch from the same
    connection gets the result that this has left. fetches: it takes an earlier result.
    """

    text: str | None
    leaves: bool = False
    fetches: bool = False


UNKNOWN: Final = SqlAccess(text=None, leaves=True)


def only_asks(text: str) -> bool:
    """Whether a text is one query that changes nothing: neither data, nor settings, nor later results."""
    bare = _without_comments(_QUOTED.sub("''", text)).strip().rstrip(";").lower()
    words = _WORD.findall(bare)
    if ";" in bare or not words or words[0] not in _FIRST or not _CHANGING.isdisjoint(words):
        return False
    return all(called in _KEYWORDS | _PURE for called in _CALLED.findall(bare))


def asks_for_chance(text: str) -> bool:
    """Whether a text may give another result each time: it mentions random numbers, or the current time."""
    bare = _without_comments(text).lower()
    patterns = _OF_NOW, _CHANCE_CALLED
    return not _CHANCE.isdisjoint(_WORD.findall(bare)) or any(each.search(bare) for each in patterns)


def _without_comments(text: str) -> str:
    """One that is not closed stays: what looks like it may stand in quotes."""
    return _COMMENT.sub(lambda found: " " if found["unclosed"] is None else found[0], text)


def names_in(text: str) -> frozenset[str]:
    """All words that may be names of tables."""
    return frozenset(word for word in _WORD.findall(text) if word.lower() not in _KEYWORDS | _PURE)


def outlives_its_call(text: str) -> bool:
    """Whether names in the text may be looked up again by a later query."""
    return not _REMEMBERED.isdisjoint(_WORD.findall(text.lower()))


def speaks_of_sequences(text: str) -> bool:
    """Whether it may create a sequence: a query of a view that draws from one changes it without saying so."""
    return "sequence" in text.lower()


Steps = Sequence[tuple[int, int, int]]


def _codes(*names: str) -> frozenset[int]:
    return frozenset(opmap[name] for name in names if name in opmap)


_SILENT: Final = _codes("PUSH_NULL", "PRECALL", "NOP", "KW_NAMES")
_CONSTANT: Final = opmap["LOAD_CONST"]
_CALL: Final = opmap["CALL"]
_CALL_KW: Final = opmap.get("CALL_KW", -1)
_ATTRIBUTES: Final = _codes("LOAD_ATTR", "LOAD_METHOD")
_PUSHING: Final = _codes(
    "LOAD_CONST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE"
)
_BUILDING: Final = _codes("BUILD_LIST", "BUILD_TUPLE", "BUILD_SET")


def ask_of(code: CodeType, steps: Steps, index: int, name: str) -> SqlAccess | None:
    """The meaning of the instruction at this place, which names one of METHODS."""
    if index and steps[index - 1][0] == _CONSTANT:  # a method of a text, such as `join`
        return None
    if name in _FETCHING:
        given = index and _is_call(steps[index - 1])
        return None if given else SqlAccess(text=None, fetches=True)
    text, behind = _text_given(code, steps[index + 1 :])
    if text is not None and name in _EXPRESSIONS:
        text = f"select {text}"
    elif text is not None and name == "table":
        text = f"from {text}"
    leaves = name in _LEAVING_RESULTS and not _is_fetched(code, steps[index + 1 + behind :])
    return SqlAccess(text=text, leaves=leaves)


def text_asked_at(code: CodeType, offset: int) -> str | None:
    """The constant text that the call at this place passes to a function of METHODS; None for any other call."""
    steps = list(instructions(code))
    for index, (operation, argument, _) in enumerate(steps):
        if operation in _ATTRIBUTES and any(code.co_names[each] in METHODS for each in _places(argument)):
            text, count = _text_given(code, steps[index + 1 :])
            if text is not None and steps[index + count][2] == offset:
                return text
    return None


def _is_call(step: tuple[int, int, int]) -> bool:
    return step[0] in (_CALL, _CALL_KW)


def _is_fetched(code: CodeType, following: Steps) -> bool:
    """Whether the whole result is taken at once, before other code can fetch it."""
    rest = [step for step in following[:2] if step[0] not in _SILENT]
    if not rest or rest[0][0] not in _ATTRIBUTES:
        return False
    index = rest[0][1]
    return any(code.co_names[place] in _IN_FULL for place in _places(index) if place < len(code.co_names))


def _places(argument: int) -> tuple[int, ...]:
    """Indexes of a name, where the lowest bit may say that it is a method."""
    return (argument >> 1,) if "LOAD_SUPER_ATTR" in opmap else (argument,)


def _text_given(code: CodeType, following: Steps) -> tuple[str | None, int]:
    """The first argument of a call, if it is a constant text, and how many instructions the call takes.

    Arguments after the text are followed if they are plain; the text must reach the call unchanged.
    """
    depth, text = 0, None
    for count, (operation, argument, _) in enumerate(following, 1):
        if operation in _SILENT:
            continue
        if not depth:
            constant = code.co_consts[argument] if operation == _CONSTANT else None
            if type(constant) is not str:
                return None, 0
            depth, text = 1, constant
        elif operation in (_CALL, _CALL_KW):
            return (text, count) if argument + (operation == _CALL_KW) == depth else (None, 0)
        elif operation in _PUSHING:
            depth += 1
        elif operation in _BUILDING and argument < depth:
            depth -= argument - 1
        else:
            return None, 0
    return None, 0
