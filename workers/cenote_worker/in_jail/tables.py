"""Tables as text: the header once, `|` between cells, what is the same in all rows said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cenote_worker.in_jail.inline import looks_like_number, one_line
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

MISSING = object()
"""A cell that a record has no key for; shown as nothing."""

_MOST_COLUMNS = 60
_FEWEST_ROWS_TO_FACTOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The rows of a table that are shown. head and tail count from 0; `left_out` lie between them."""

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
    """Whether a column is of strings only and one of them would pass for a number: then its header says so."""
    strings = [value for value in values if isinstance(value, str)]
    return len(strings) == len(values) and any(looks_like_number(value) for value in strings)


def common_columns(records: Sequence[Mapping[object, object]]) -> list[object] | None:
    """The keys of records that are alike enough for one table: at least two, and two thirds of cells filled."""
    if len(records) < 2 or not all(records):
        return None
    columns = list(dict.fromkeys(key for record in records[:1_000] for key in record))
    filled = sum(len(record) for record in records[:1_000])
    if not all(isinstance(column, (str, int)) for column in columns):
        return None
    return columns if 3 * filled >= 2 * len(columns) * min(len(records), 1_000) else None
