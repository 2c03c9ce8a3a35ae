"""Values on one line, and tables as text.

A line is as compact as possible while still readable: no rounding, quotes only where they are needed. A table has its
header once, `|` between cells, and states constant columns once.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from cenote_worker.jail.rendering.bounded_text import (
    bases,
    bounded_repr,
    bounded_str,
    module_name,
    shorten,
    type_name,
)
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

STRING_CHARS = 600
"""A longer string loses its middle. Ids, names and sentences are far shorter than this."""

_MOST_ITEMS = 50
_MOST_DEPTH = 6
_NUMBER_LIKE = re.compile(r"[+-]?(\d[\d_]*+(?:\.\d*+)?|\.\d++)([eE][+-]?\d+)?|nan|NaN|inf|None|True|False")
_NEEDS_QUOTES = re.compile(r"[|\n\r\t{}\[\]]|^\s|\s$|^$|, |: ")
_TEXTUAL = ("datetime", "decimal", "uuid", "pathlib", "fractions", "pandas", "numpy")
_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__


def one_line(value: object, *, number_like_strings: bool = False, depth: int = 0) -> str:
    """A value in one line.

    number_like_strings: whether strings such as `"007"` have no quotes, because the reader knows that they are
    strings.
    """
    if isinstance(value, str):
        return _string(value, number_like_strings)
    if isinstance(value, enum.Enum):
        return f"{type_name(type(value))}.{_get(value, '_name_')}"
    if depth >= _MOST_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return f"{{{_pairs(value, ': ', depth)}}}"
    if isinstance(value, (list, tuple, set, frozenset)) and not is_named_tuple(value):
        return _items(value, depth)
    record = as_record(value)
    if record is not None:
        return f"{type_name(type(value))}({_pairs(filled(record), '=', depth)})"
    return scalar(value)


def scalar(value: object) -> str:
    """Numbers in full; dates, decimals and similar values by `str`, others by `repr`."""
    if module_name(type(value)).partition(".")[0] in _TEXTUAL:
        return shorten(bounded_str(value, STRING_CHARS).replace("\n", " "), STRING_CHARS)
    return bounded_repr(value, STRING_CHARS)


def looks_like_number(text: str) -> bool:
    return _NUMBER_LIKE.fullmatch(text) is not None


def as_record(value: object) -> dict[str, object] | None:
    """The fields of a dataclass, pydantic model, named tuple or plain object; None for anything else."""
    if isinstance(value, type):
        return None
    if is_named_tuple(value):
        return dict(zip(type(value)._fields, value, strict=False))  # type: ignore[attr-defined, call-overload]
    for cls in bases(type(value)):
        fields = _class_dict(cls).get("__dataclass_fields__") or _class_dict(cls).get("__pydantic_fields__")
        if isinstance(fields, dict):
            return {name: getattr(value, name) for name in fields if hasattr(value, name)}
    return _attributes(value)


def filled(record: dict[str, object]) -> dict[str, object]:
    """A record without its empty fields: its class shows which fields exist."""
    return {name: item for name, item in record.items() if not _is_empty(item)}


def _is_empty(value: object) -> bool:
    return value is None or (type(value) in (str, list, tuple, dict, set, frozenset) and not value)


def is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and type(getattr(type(value), "_fields", None)) is tuple


def _attributes(value: object) -> dict[str, object] | None:
    """The public attributes of an instance whose class has no repr of its own."""
    if type(value).__repr__ is not object.__repr__:
        return None
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict:
        return None
    public = {name: item for name, item in attributes.items() if type(name) is str and name[:1] != "_"}
    return public or None


def _string(value: str, number_like: bool) -> str:
    text = shorten(value, STRING_CHARS)
    ambiguous = not number_like and looks_like_number(text)
    return repr(text) if ambiguous or _NEEDS_QUOTES.search(text) else text


def _pairs(record: Mapping[object, object] | dict[str, object], between: str, depth: int) -> str:
    parts = [
        f"{one_line(key, depth=depth + 1)}{between}{one_line(item, depth=depth + 1)}"
        for key, item in islice(record.items(), _MOST_ITEMS)
    ]
    return ", ".join(parts) + _more(len(record))


def _items(values: Iterable[object], depth: int) -> str:
    is_set = isinstance(values, (set, frozenset))
    items = list(values)
    texts = [one_line(item, depth=depth + 1) for item in items[:_MOST_ITEMS]]
    inner = ", ".join(sorted(texts) if is_set else texts) + _more(len(items))
    return f"{{{inner}}}" if is_set else f"[{inner}]"


def _more(count: int) -> str:
    return f", ... {count - _MOST_ITEMS:,} more" if count > _MOST_ITEMS else ""


MISSING = object()
"""A cell of a record without that key; shown as empty."""

_MOST_COLUMNS = 60
_FEWEST_ROWS_TO_FACTOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The rows of a table that are shown. head and tail count from 0; `left_out` rows are between them."""

    head: Sequence[Sequence[object]]
    tail: Sequence[Sequence[object]]
    left_out: int


def excerpt(rows: Sequence[Sequence[object]], limit: int) -> Excerpt:
    """All rows if they fit, else three quarters of the limit from the top and one from the end."""
    if len(rows) <= limit:
        return Excerpt(head=rows, tail=(), left_out=0)
    head, tail = split_limit(limit)
    return Excerpt(head=rows[:head], tail=rows[len(rows) - tail :], left_out=len(rows) - head - tail)


def split_limit(limit: int) -> tuple[int, int]:
    tail = limit // 4
    return limit - tail, tail


def table(columns: Sequence[str], shown: Excerpt, *, types: Sequence[str] = ()) -> str:
    """Lines of a table. types: written after the columns' names as `name:type`, where known."""
    rows = [*shown.head, *shown.tail]
    texts, constant, header = [], [], []
    for index, column in enumerate(columns[:_MOST_COLUMNS]):
        values = [row[index] for row in rows]
        as_text = _all_strings_like_numbers(values)
        kind = types[index] if index < len(types) else "str" if as_text else ""
        cells = [_cell(value, as_text) for value in values]
        name = f"{column}:{kind}" if kind else column
        if not shown.left_out and len(rows) >= _FEWEST_ROWS_TO_FACTOR and len(set(cells)) == 1:
            constant.append(f"{name}={cells[0]}")
        else:
            header.append(name)
            texts.append(cells)
    return "\n".join(_lines(header, texts, constant, shown, len(columns)))


def _lines(
    header: list[str], texts: list[list[str]], constant: list[str], shown: Excerpt, columns: int
) -> list[str]:
    lines = [f"same in all: {', '.join(constant)}"] if constant else []
    if columns > _MOST_COLUMNS:
        lines.append(f"{columns - _MOST_COLUMNS} more columns are left out")
    if not header:
        return lines
    body = ["|".join(cells) for cells in zip(*texts, strict=True)]
    if shown.left_out:
        before = len(shown.head)
        last, count = before + shown.left_out, len(body) + shown.left_out
        body.insert(before, f"... rows {before + 1:,} to {last:,} of {count:,} ...")
    return [*lines, "|".join(header), *body]


def _cell(value: object, as_text: bool) -> str:
    return "" if value is MISSING else one_line(value, number_like_strings=as_text)


def _all_strings_like_numbers(values: Sequence[object]) -> bool:
    """Whether a column has only strings and one of them looks like a number: then its header says so."""
    strings = [value for value in values if isinstance(value, str)]
    return len(strings) == len(values) and any(looks_like_number(value) for value in strings)


def common_columns(records: Sequence[Mapping[object, object]]) -> list[object] | None:
    """The common keys of records that fit one table: at least two, and two thirds of cells filled."""
    if len(records) < 2 or not all(records):
        return None
    columns = list(dict.fromkeys(key for record in records[:1_000] for key in record))
    filled = sum(len(record) for record in records[:1_000])
    if not all(isinstance(column, (str, int)) for column in columns):
        return None
    return columns if 3 * filled >= 2 * len(columns) * min(len(records), 1_000) else None
