"""Indexes, Series and DataFrames of pandas.

A frame is sent column by column, or as one block when all columns are numbers of one type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.libraries import optional
from cenote_security.values.libraries.pandas_arrays import (
    check_codes,
    check_column,
    column_values,
    frequency_name,
    is_slow,
    read_frequency,
)
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, NodeParts, Write

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


_MAX_LEVELS = 1000
_LONGEST_CALENDAR = 100_000
"""Dates of an index whose calendar frequency (business days, say) pandas checks one by one, 5 us each."""


def index_writers() -> dict[type, Write]:
    pd = optional.loaded("pandas", "DataFrame")
    if pd is None:
        return {}
    dated = dict.fromkeys((pd.DatetimeIndex, pd.TimedeltaIndex), _write_dated)
    return {
        **dict.fromkeys((pd.Index, pd.PeriodIndex, pd.IntervalIndex, pd.CategoricalIndex), _write_index),
        **dated,
        pd.RangeIndex: _write_range,
        pd.MultiIndex: _write_multi,
    }


def _write_index(encoder: Encoder, value: Foreign) -> Node:
    return ["index", None, [encoder.child(column_values(value))], [encoder.child(value.name)]]


def _write_dated(encoder: Encoder, value: Foreign) -> Node:
    name = frequency_name(value.freq)
    if name is not None and is_slow(name) and len(value) > _LONGEST_CALENDAR:
        name = None
    return ["index", name, *_write_index(encoder, value)[2:]]


def _build_index(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    pd = optional.pandas()
    (values,), (name,) = parts.runs
    check_column(values)
    dtype = values.dtype if isinstance(values, np.ndarray) else None
    index = pd.Index(values, dtype=dtype, name=name, copy=False)
    return index if parts.meta is None else _with_frequency(index, read_frequency(parts.meta))


def _with_frequency(index: Foreign, name: str) -> Foreign:
    pd = optional.pandas()
    if is_slow(name) and len(index) > _LONGEST_CALENDAR:
        expect.malformed("a calendar frequency of a long index")
    if not isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
        expect.malformed("a frequency of an index without dates")
    return type(index)(index, freq=name)


def _write_range(encoder: Encoder, value: Foreign) -> Node:
    return ["rangeindex", [value.start, value.stop, value.step], [encoder.child(value.name)]]


def _build_range(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    start, stop, step = (_read_bound(bound) for bound in expect.items(parts.meta, 3))
    (name,) = parts.runs[0]
    return pd.RangeIndex(start, stop, step, name=name)


def _read_bound(meta: Json) -> int:
    return expect.integer(meta, -(2**62), 2**62)


def _write_multi(encoder: Encoder, value: Foreign) -> Node:
    parts = (value.levels, value.codes, value.names)
    return ["multiindex", None, *(encoder.run(list(part)) for part in parts)]


def _build_multi(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    levels, codes, names = parts.runs
    if len(levels) > _MAX_LEVELS:
        expect.malformed(f"more than {_MAX_LEVELS} levels")
    indexes: list[Foreign] = [
        level if isinstance(level, pd.Index) else expect.malformed("a level is an index") for level in levels
    ]
    checked = [check_codes(code, len(level)) for code, level in zip(codes, indexes, strict=True)]
    if len({len(code) for code in checked}) != 1 or any(
        isinstance(level, pd.MultiIndex) for level in indexes
    ):
        expect.malformed("the levels of an index do not fit together")
    # Not verified by pandas: it would hash the levels, at a cost that hostile numbers decide.
    return pd.MultiIndex(indexes, checked, names=names, verify_integrity=False, copy=False)


INDEX_KINDS: dict[str, Kind] = {
    "index": Immutable(build=_build_index, runs=2, hashed=(1,), whole=True),
    "rangeindex": Immutable(build=_build_range, hashed=(0,), whole=True),
    "multiindex": Immutable(build=_build_multi, runs=3, hashed=(2,), whole=True),
}


MAX_COLUMNS = 100_000
"""Of different types; each costs two kilobytes. A block of numbers may have any number."""


def frame_writers() -> dict[type, Write]:
    pd = optional.loaded("pandas", "DataFrame")
    if pd is None:
        return {}
    return {pd.Series: _write_series, pd.DataFrame: _write_frame}


def _write_series(encoder: Encoder, value: Foreign) -> Node:
    content = [encoder.child(column_values(value)), encoder.child(value.index)]
    return ["series", None, content, [encoder.child(value.name)], [_write_attributes(encoder, value)]]


def _write_attributes(encoder: Encoder, value: Foreign) -> Foreign:
    return encoder.child(value.attrs) if value.attrs else None


def _build_series(parts: NodeParts) -> Foreign:
    _, (name,), (attributes,) = parts.runs
    values, index = expect.children(parts, 2)
    return _with_attributes(_series(check_column(values), _index(index), name), attributes)


def _series(values: Foreign, index: Foreign, name: Foreign = None) -> Foreign:
    pd = optional.pandas()
    if len(values) != len(index):
        expect.malformed("a column is not as long as its index")
    return pd.Series(values, index=index, dtype=values.dtype, name=name, copy=False)


def _index(value: Foreign) -> Foreign:
    pd = optional.pandas()
    return value if isinstance(value, pd.Index) else expect.malformed("expected an index")


def _with_attributes(holder: Foreign, attributes: Foreign) -> Foreign:
    if attributes is not None:
        holder.attrs = attributes if type(attributes) is dict else expect.malformed("attrs are a dict")
    return holder


def _write_frame(encoder: Encoder, value: Foreign) -> Node:
    axes = [encoder.child(value.columns), encoder.child(value.index)]
    attributes = [_write_attributes(encoder, value)]
    if _is_uniform(value):
        return ["block", None, axes, [encoder.child(value.to_numpy())], attributes]
    if value.shape[1] > MAX_COLUMNS:
        raise UnsafeValueError("pandas.DataFrame", f"more than {MAX_COLUMNS} columns")
    columns = [column_values(value.iloc[:, position]) for position in range(value.shape[1])]
    return ["frame", None, axes, encoder.run(_unshared(columns)), attributes]


def _unshared(columns: list[Foreign]) -> list[Foreign]:
    """Two columns can be one array; rebuilt, each has its own, since a change of one must not be one of the other."""
    first = {id(column): number for number, column in reversed(list(enumerate(columns)))}
    return [c if first[id(c)] == number else c.copy() for number, c in enumerate(columns)]


def _is_uniform(frame: Foreign) -> bool:
    """Whether all columns are one array in memory, or may become one without losing anything."""
    np = optional.numpy()
    kinds = set(frame.dtypes)
    return (
        frame.shape[1] > 1
        and len(kinds) == 1
        and isinstance(kind := kinds.pop(), np.dtype)
        and not kind.hasobject
    )


def _axes(parts: NodeParts) -> tuple[Foreign, Foreign]:
    columns, index = expect.children(parts, 2)
    return _index(columns), _index(index)


def _build_block(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    columns, index = _axes(parts)
    (block,), (attributes,) = parts.runs[1:]
    check_column(block, "biufcmM", dimensions=2)
    return _with_attributes(pd.DataFrame(block, index=index, columns=columns, copy=False), attributes)


def _build_frame(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    columns, index = _axes(parts)
    _, values, (attributes,) = parts.runs
    # By number, since names may repeat. As Series, since pandas would look into bare arrays of objects for text.
    content = {
        number: _series(check_column(column), index)
        for number, column in enumerate(expect.distinct(values, MAX_COLUMNS))
    }
    frame = pd.DataFrame(content, index=index, copy=False)
    frame.columns = columns
    return _with_attributes(frame, attributes)


FRAME_KINDS: dict[str, Kind] = {
    "series": Immutable(build=_build_series, runs=3, hashed=(1,), whole=True),
    "block": Immutable(build=_build_block, runs=3, whole=True),
    "frame": Immutable(build=_build_frame, runs=3, whole=True),
}
