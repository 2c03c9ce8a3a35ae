"""`show(x)`: nested data, records and tables in few characters, with ids, prices and names kept whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from cenote_worker.jail.rendering.bounded_text import shorten, type_name
from cenote_worker.jail.rendering.frame_tables import frame_rows, frame_text
from cenote_worker.jail.rendering.signatures import class_text
from cenote_worker.jail.rendering.tables import (
    MISSING,
    as_record,
    common_columns,
    excerpt,
    filled,
    is_named_tuple,
    one_line,
    split_limit,
    table,
)
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_WIDTH = 100
_RECORD_WIDTH = 160
"""Characters of a value that stays on the line of its key, and of a record on one line."""

_ROWS = 20
_SHORT_ROWS = 100
_SHORT_CHARS = 3_000
"""Rows of a collection that are shown where more would be long; rows and characters of a value that is shown whole: a
further question for the rest would cost more, since it sends the whole conversation again."""

_FEWEST_KEYS = 40
"""A plain dict is a record: its keys are cut later than the rows of a table."""

_CHARS = 7_800
"""Characters of one value: the default limit of a cell's output for a model."""

_HEAD_SHARE = 0.75
"""The share of these for the first items of a long collection if not all fit."""

_MOST_DEPTH = 8
_COLLECTIONS = (Mapping, list, tuple, set, frozenset, deque)
_print = print


def show(*values: object, rows: int | None = None, chars: int = _CHARS, start: int | None = None) -> None:
    """Prints data compactly: records as a table, nested dicts indented, long collections by head and tail; a class
    with its fields and their types.

    rows: how many rows or items of each collection are shown; if not given, 20, or all of a value that is short.
    chars: about how many characters of each value: where more are left out, whole items are. start: shows `rows`
    rows, items or lines of a text from this position on, counted from 0, and how many there are, in place of head and
    tail. Empty fields of records (None, no text, no items) are left out. Numbers are never rounded; strings are cut
    in the middle only when they are very long.
    """
    for value in values:
        _print(render(value, rows=rows, chars=chars, start=start))


def render(value: object, *, rows: int | None = None, chars: int = _CHARS, start: int | None = None) -> str:
    """The text that `show` prints; equal values give equal text."""
    if start is not None:
        return _render_part(value, start, _ROWS if rows is None else rows, chars)
    if isinstance(value, str):
        return shorten(value, chars)
    if isinstance(value, type):
        return shorten(class_text(value), chars)
    if rows is None and (text := _whole(value, min(chars, _SHORT_CHARS))):
        return text
    return shorten("\n".join(_Layout(_ROWS if rows is None else max(rows, 1), chars).block(value, 0)), chars)


def _whole(value: object, chars: int) -> str:
    """All of a value of few rows and characters; empty for others."""
    if isinstance(value, _COLLECTIONS) and len(value) > _SHORT_ROWS:
        return ""
    layout = _Layout(_SHORT_ROWS, chars)
    text = "\n".join(layout.block(value, 0))
    return text if layout.whole and len(text) <= chars else ""


def _render_part(value: object, start: int, rows: int, chars: int) -> str:
    if start < 0 or rows < 1:
        raise ValueError(f"start is 0 or more and rows is 1 or more, not {start} and {rows}")
    part: object
    what, end = "rows", start + rows
    if isinstance(value, str):
        what, lines = "lines", value.splitlines()
        part, total = "\n".join(lines[start:end]), len(lines)
    elif (found := frame_rows(value, start, end)) is not None:
        part, total = found
    elif isinstance(value, Mapping):
        what, part, total = "keys", dict(islice(value.items(), start, end)), len(value)
    elif isinstance(value, _COLLECTIONS):
        items = sorted(value, key=one_line) if isinstance(value, (set, frozenset)) else value
        what, part, total = "items", list(islice(items, start, end)), len(value)
    else:
        raise TypeError(
            f"parts are shown of texts, collections, arrays and tables, not of {type_name(type(value))}"
        )
    if start >= total:
        return f"there are {total:,} {what}, and none from {start:,} on"
    return (
        f"{what} {start:,} to {min(end, total) - 1:,} of {total:,}:\n{render(part, rows=rows, chars=chars)}"
    )


class _Layout:
    """Lays out one value as lines, without indentation of its own.

    whole: nothing was left out so far.
    """

    def __init__(self, rows: int, chars: int) -> None:
        self._rows = rows
        self._chars = chars
        self.whole = True

    def block(self, value: object, depth: int) -> list[str]:
        if (text := frame_text(value, self._rows)) is not None:
            self.whole = self.whole and ((part := frame_rows(value, 0, 0)) is None or part[1] <= self._rows)
            return text.split("\n")
        if depth >= _MOST_DEPTH:
            return [one_line(value)]
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, (set, frozenset)):
            return self._sequence(sorted(value, key=one_line), depth)
        if isinstance(value, (list, tuple, deque)) and not is_named_tuple(value):
            return self._sequence(list(value), depth)
        if isinstance(value, str) or (record := as_record(value)) is None:
            return [one_line(value)]
        return [type_name(type(value)), *_indented(self._mapping(filled(record), depth))]

    def _shortest(self, *ways: Callable[[], list[str]]) -> list[str]:
        """Of several ways to lay out the same values, the one that leaves nothing out, and of those the shortest."""
        before, found = self.whole, list[tuple[bool, list[str]]]()
        for way in ways:
            self.whole = True
            text = way()
            found.append((not self.whole, text))
        cut, text = min(found, key=lambda one: (one[0], _length(one[1])))
        self.whole = before and not cut
        return text

    def _mapping(self, mapping: Mapping[object, object] | dict[str, object], depth: int) -> list[str]:
        if not mapping:
            return ["{}"]
        records = _records(list(mapping.values()))
        if records is not None and (columns := common_columns(records)) is not None:
            keyed = [[key, *_cells(record, columns)] for key, record in zip(mapping, records, strict=True)]
            text = partial(self._table, ["key", *columns], keyed)
            pairs = partial(self._pairs, list(mapping.items()), depth)
            return [
                *self._count(len(keyed)),
                *(self._shortest(text, pairs) if _holds_tables(records) else text()),
            ]
        return self._pairs(list(mapping.items()), depth)

    def _pairs(self, items: Sequence[tuple[object, object]], depth: int) -> list[str]:
        limit = max(self._rows, _FEWEST_KEYS)
        return self._fitting(len(items), limit, lambda at: self._pair(*items[at], depth), "keys")

    def _pair(self, key: object, value: object, depth: int) -> list[str]:
        name = one_line(key)
        if not _is_long(value) and len(text := one_line(value)) <= _width(value):
            return [f"{name}: {text}"]
        block = self.block(value, depth + 1)
        return [f"{name}: {block[0]}"] if len(block) == 1 else [f"{name}:", *_indented(block)]

    def _sequence(self, values: list[object], depth: int) -> list[str]:
        if not values:
            return ["[]"]
        records = _records(values)
        if records is not None and (columns := common_columns(records)) is not None:
            cells = [_cells(record, columns) for record in records]
            text, items = partial(self._table, columns, cells), partial(self._items, values, depth)
            return [
                *self._count(len(values)),
                *(self._shortest(text, items) if _holds_tables(records) else text()),
            ]
        if all(_is_flat(value) for value in values):
            return self._flat(values)
        return [*self._count(len(values)), *self._items(values, depth)]

    def _items(self, values: list[object], depth: int) -> list[str]:
        def lines(at: int) -> list[str]:
            first, *rest = self._item(values[at], depth)
            return [f"- {first}", *_indented(rest)]

        return self._fitting(len(values), self._rows, lines, "items")

    def _fitting(self, count: int, limit: int, lines: Callable[[int], list[str]], what: str) -> list[str]:
        """The first and the last items, whole, as far as they fit. lines: gives the lines of one item."""
        heads, tails = (count, 0) if count <= limit else split_limit(limit)
        head, used = list[list[str]](), 0
        while len(head) < heads:
            head.append(lines(len(head)))
            used += _length(head[-1])
            if used > self._chars:
                break
        if used > self._chars:
            tails = count
            while len(head) > 1 and used > _HEAD_SHARE * self._chars:
                used -= _length(head.pop())
        tail = list[list[str]]()
        while len(tail) < min(tails, count - len(head)):
            one = lines(count - len(tail) - 1)
            used += _length(one)
            if used > self._chars:
                break
            tail.insert(0, one)
        left_out = (len(head) + 1, count - len(tail))
        self.whole = self.whole and left_out[0] > left_out[1]
        gap = [f"... {what} {left_out[0]:,} to {left_out[1]:,} of {count:,} ..."]
        return list(chain(*head, gap if left_out[0] <= left_out[1] else (), *tail))

    def _item(self, value: object, depth: int) -> list[str]:
        if not _is_long(value) and len(text := one_line(value)) <= _width(value):
            return [text]
        return self.block(value, depth + 1)

    def _flat(self, values: list[object]) -> list[str]:
        """Plain items on one line; more than rows of them as head and tail."""
        limit = max(self._rows, _FEWEST_KEYS)
        shown = self._excerpted([(value,) for value in values], limit)
        text = ", ".join(item if isinstance(item, str) else one_line(item[0]) for item in shown)
        return [f"[{text}]"] if len(values) <= limit else [f"{len(values):,} items: [{text}]"]

    def _table(self, columns: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
        names = [one_line(column, number_like_strings=isinstance(column, str)) for column in columns]
        limit = self._rows
        self.whole = self.whole and len(rows) <= limit
        while len(text := table(names, excerpt(rows, limit))) > self._chars and limit > 1:
            limit = max(min(limit - 1, min(limit, len(rows)) * self._chars // len(text)), 1)
            self.whole = False
        return text.split("\n")

    def _count(self, count: int) -> list[str]:
        return [f"{count:,} items:"] if count > self._rows else []

    def _excerpted(
        self, items: Sequence[tuple[object, ...]], limit: int
    ) -> Iterable[tuple[object, ...] | str]:
        if len(items) <= limit:
            return items
        self.whole = False
        head, tail = split_limit(limit)
        return [*items[:head], f"... {len(items) - limit:,} more ...", *items[len(items) - tail :]]


def _records(values: list[object]) -> list[Mapping[object, object]] | None:
    """The values as records, if each is one and all are of one class."""
    if len(values) < 2 or len({type(value) for value in values}) != 1:
        return None
    if isinstance(values[0], Mapping):
        return values  # type: ignore[return-value]
    found = list[Mapping[Any, object]]()
    for value in values:
        record = None if _is_flat(value) else as_record(value)
        if record is None:
            return None
        found.append(filled(record))
    return found


def _holds_tables(records: Sequence[Mapping[object, object]]) -> bool:
    """Whether a record has a list of records that would be a table of its own."""
    values = (value for record in records[:_SHORT_ROWS] for value in record.values())
    lists = (_records(list(value)) for value in values if isinstance(value, (list, tuple)))
    return any(inner is not None and common_columns(inner) is not None for inner in lists)


def _cells(record: Mapping[object, object], columns: Sequence[object]) -> list[object]:
    return [record.get(column, MISSING) for column in columns]


def _is_flat(value: object) -> bool:
    if isinstance(value, (str, int, float, bool, bytes, type(None))):
        return True
    return not isinstance(value, _COLLECTIONS) and as_record(value) is None


def _is_long(value: object) -> bool:
    """Whether a value is too long to try whether it fits on one line."""
    if isinstance(value, _COLLECTIONS):
        return len(value) > _FEWEST_KEYS
    return not isinstance(value, (str, int, float, bool, type(None))) and frame_text(value, 1) is not None


def _width(value: object) -> int:
    return _WIDTH if isinstance(value, _COLLECTIONS) else _RECORD_WIDTH


def _length(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line for line in lines]
