"""`show(x)`: nested data, records and tables in the fewest characters that keep ids, prices and names whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from cenote_worker.in_jail.bounded import shorten, type_name
from cenote_worker.in_jail.inline import as_record, is_named_tuple, one_line
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.show_frames import frame_text
from cenote_worker.in_jail.tables import MISSING, common_columns, excerpt, split_limit, table

__builtins__ = BUILTINS

_WIDTH = 100
"""Characters of a value that stays on the line of its key."""

_FEWEST_KEYS = 40
"""A plain dict is a record: its keys are cut later than the rows of a table."""

_TOTAL_CHARS = 20_000
_TEXT_CHARS = 8_000
_MOST_DEPTH = 8
_COLLECTIONS = (Mapping, list, tuple, set, frozenset, deque)
_print = print


def show(*values: object, rows: int = 20) -> None:
    """Prints data compactly: records as a table, nested dicts indented, long collections by head and tail.

    rows: how many rows or items of each collection are shown. Numbers are never rounded; strings are cut in the
    middle only when they are very long.
    """
    for value in values:
        _print(render(value, rows=rows))


def render(value: object, *, rows: int = 20) -> str:
    """What `show` prints; equal values give equal text."""
    if isinstance(value, str):
        return shorten(value, _TEXT_CHARS)
    return shorten("\n".join(_Layout(max(rows, 1)).block(value, 0)), _TOTAL_CHARS)


class _Layout:
    """Lays out one value as lines, without indentation of its own."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def block(self, value: object, depth: int) -> list[str]:
        if (text := frame_text(value, self._rows)) is not None:
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
        return [type_name(type(value)), *_indented(self._mapping(record, depth))]

    def _mapping(self, mapping: Mapping[object, object] | dict[str, object], depth: int) -> list[str]:
        if not mapping:
            return ["{}"]
        records = _records(list(mapping.values()))
        if records is not None and (columns := common_columns(records)) is not None:
            keyed = [[key, *_cells(record, columns)] for key, record in zip(mapping, records, strict=True)]
            return [*self._count(len(keyed)), *self._table(["key", *columns], keyed)]
        return self._pairs(list(mapping.items()), depth)

    def _pairs(self, items: Sequence[tuple[object, object]], depth: int) -> list[str]:
        limit = max(self._rows, _FEWEST_KEYS)
        lines: list[str] = []
        for item in self._excerpted(items, limit):
            lines += [item] if isinstance(item, str) else self._pair(item[0], item[1], depth)
        return lines

    def _pair(self, key: object, value: object, depth: int) -> list[str]:
        name = one_line(key)
        if not _is_long(value) and len(text := one_line(value)) <= _WIDTH:
            return [f"{name}: {text}"]
        block = self.block(value, depth + 1)
        return [f"{name}: {block[0]}"] if len(block) == 1 else [f"{name}:", *_indented(block)]

    def _sequence(self, values: list[object], depth: int) -> list[str]:
        if not values:
            return ["[]"]
        records = _records(values)
        if records is not None and (columns := common_columns(records)) is not None:
            cells = [_cells(record, columns) for record in records]
            return [*self._count(len(values)), *self._table(columns, cells)]
        if all(_is_flat(value) for value in values):
            return self._flat(values)
        return [*self._count(len(values)), *self._items(values, depth)]

    def _items(self, values: list[object], depth: int) -> list[str]:
        lines: list[str] = []
        for item in self._excerpted([(value,) for value in values], self._rows):
            if isinstance(item, str):
                lines.append(item)
                continue
            first, *rest = self._item(item[0], depth)
            lines += [f"- {first}", *_indented(rest)]
        return lines

    def _item(self, value: object, depth: int) -> list[str]:
        if not _is_long(value) and len(text := one_line(value)) <= _WIDTH:
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
        return table(names, excerpt(rows, self._rows)).split("\n")

    def _count(self, count: int) -> list[str]:
        return [f"{count:,} items:"] if count > self._rows else []

    @staticmethod
    def _excerpted(items: Sequence[tuple[object, ...]], limit: int) -> Iterable[tuple[object, ...] | str]:
        if len(items) <= limit:
            return items
        head, tail = split_limit(limit)
        return [*items[:head], f"... {len(items) - limit:,} more ...", *items[len(items) - tail :]]


def _records(values: list[object]) -> list[Mapping[object, object]] | None:
    """The values as records, if each is one and all are of one class."""
    if len(values) < 2 or len({type(value) for value in values}) != 1:
        return None
    if isinstance(values[0], Mapping):
        return values  # type: ignore[return-value]
    records = [None if _is_flat(value) else as_record(value) for value in values]
    return None if None in records else records  # type: ignore[return-value]


def _cells(record: Mapping[object, object], columns: Sequence[object]) -> list[object]:
    return [record.get(column, MISSING) for column in columns]


def _is_flat(value: object) -> bool:
    if isinstance(value, (str, int, float, bool, bytes, type(None))):
        return True
    return not isinstance(value, _COLLECTIONS) and as_record(value) is None


def _is_long(value: object) -> bool:
    """Whether a value is not worth writing out in one line first, to see that it doesn't fit."""
    if isinstance(value, _COLLECTIONS):
        return len(value) > _FEWEST_KEYS
    return not isinstance(value, (str, int, float, bool, type(None))) and frame_text(value, 1) is not None


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line for line in lines]
