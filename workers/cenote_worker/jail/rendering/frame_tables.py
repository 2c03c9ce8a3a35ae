"""Frames and arrays of pandas, numpy, polars and pyarrow as tables, without importing any of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cenote_worker.jail.rendering.bounded_text import bases, bounded_str
from cenote_worker.jail.rendering.tables import Excerpt, one_line, scalar, split_limit, table
from cenote_worker.process.pristine import BUILTINS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

__builtins__ = BUILTINS

_modules = sys.modules


def frame_text(value: object, rows: int) -> str | None:
    """A table of at most `rows` rows under a line with shape and types; None for other objects."""
    kind = _kind(value)
    return None if kind is None else _WRITERS[kind](value, rows)


def frame_rows(value: Any, start: int, stop: int) -> tuple[object, int] | None:
    """These rows of a frame or array, and their total number; None for other objects, and for an array without
    axes."""
    kind = _kind(value)
    if kind is None or (kind == ("numpy", "ndarray") and value.ndim == 0):
        return None
    if kind[0] == "pandas":
        return value.iloc[start:stop], len(value)
    if kind[0] == "numpy":
        return value[start:stop], len(value)
    return value.slice(start, stop - start), len(value)


def _kind(value: object) -> tuple[str, str] | None:
    for module, name in _WRITERS:
        loaded = _modules.get(module)
        if loaded is not None and getattr(loaded, name, None) in bases(type(value)):
            return module, name
    return None


def _pandas_frame(frame: pd.DataFrame, rows: int) -> str:
    columns = [one_line(name, number_like_strings=isinstance(name, str)) for name in frame.columns]
    types = [bounded_str(dtype, 40) for dtype in frame.dtypes]
    with_index = not _is_default_index(frame.index)

    def part(start: int, stop: int) -> list[list[object]]:
        piece = frame.iloc[start:stop]
        lists = [piece.iloc[:, index].tolist() for index in range(piece.shape[1])]
        if with_index:
            lists.insert(0, piece.index.tolist())
        return [list(row) for row in zip(*lists, strict=True)]

    if with_index:
        columns.insert(0, one_line(frame.index.name or "index"))
        types.insert(0, bounded_str(frame.index.dtype, 40))
    head = f"{len(frame):,} rows x {frame.shape[1]} columns"
    return _titled(head, table(columns, _excerpt_of(len(frame), rows, part), types=types))


def _pandas_series(series: pd.Series[Any], rows: int) -> str:
    def part(start: int, stop: int) -> list[list[object]]:
        piece = series.iloc[start:stop]
        return [list(row) for row in zip(piece.index.tolist(), piece.tolist(), strict=True)]

    name = one_line(series.name) if series.name is not None else "value"
    columns, types = [one_line(series.index.name or "index"), name], ["", bounded_str(series.dtype, 40)]
    return _titled(
        f"{len(series):,} values", table(columns, _excerpt_of(len(series), rows, part), types=types)
    )


def _array(array: np.ndarray[Any, Any], rows: int) -> str:
    title = f"array {array.shape} {array.dtype}"
    if array.ndim == 0:
        return f"{title}: {scalar(array.item())}"
    if array.ndim > 2:
        return _titled(title, "\n".join(one_line(item) for item in array[:rows].tolist()))
    limit = max(rows, 40) if array.ndim == 1 else rows
    head, tail = (len(array), 0) if len(array) <= limit else split_limit(limit)
    parts = [array[:head].tolist(), array[len(array) - tail :].tolist()]
    left_out = [f"... {len(array) - limit:,} more ..."] if len(array) > limit else []
    if array.ndim == 1:
        first, last = ([scalar(item) for item in part] for part in parts)
        return f"{title}: [{', '.join([*first, *left_out, *last])}]"
    first, last = (["|".join(scalar(item) for item in row) for row in part] for part in parts)
    return _titled(title, "\n".join([*first, *left_out, *last]))


def _polars_frame(frame: Any, rows: int) -> str:
    def part(start: int, stop: int) -> list[list[object]]:
        return [list(row) for row in frame.slice(start, stop - start).rows()]

    types = [bounded_str(dtype, 40) for dtype in frame.dtypes]
    title = f"{frame.height:,} rows x {frame.width} columns"
    return _titled(title, table(frame.columns, _excerpt_of(frame.height, rows, part), types=types))


def _arrow_table(arrow: Any, rows: int) -> str:
    def part(start: int, stop: int) -> list[list[object]]:
        lists = [column.to_pylist() for column in arrow.slice(start, stop - start).columns]
        return [list(row) for row in zip(*lists, strict=True)]

    types = [bounded_str(kind, 40) for kind in arrow.schema.types]
    title = f"{arrow.num_rows:,} rows x {arrow.num_columns} columns"
    return _titled(title, table(arrow.column_names, _excerpt_of(arrow.num_rows, rows, part), types=types))


def _excerpt_of(count: int, limit: int, part: Callable[[int, int], Sequence[Sequence[object]]]) -> Excerpt:
    if count <= limit:
        return Excerpt(head=part(0, count), tail=(), left_out=0)
    head, tail = split_limit(limit)
    return Excerpt(head=part(0, head), tail=part(count - tail, count), left_out=count - head - tail)


def _is_default_index(index: Any) -> bool:
    return type(index) is _modules["pandas"].RangeIndex and index.start == 0 and index.step == 1


def _titled(title: str, body: str) -> str:
    return f"{title}\n{body}" if body else title


_WRITERS: dict[tuple[str, str], Callable[[Any, int], str]] = {
    ("pandas", "DataFrame"): _pandas_frame,
    ("pandas", "Series"): _pandas_series,
    ("numpy", "ndarray"): _array,
    ("polars", "DataFrame"): _polars_frame,
    ("pyarrow", "Table"): _arrow_table,
}
