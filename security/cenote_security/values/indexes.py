"""Indexes of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.values import expect, libraries
from cenote_security.values.frequencies import frequency_name, is_slow, read_frequency
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, Parts, Write
from cenote_security.values.pandas_arrays import check_codes, check_column, column_values

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_MAX_LEVELS = 1000
_LONGEST_CALENDAR = 100_000
"""Dates of an index whose calendar frequency (business days, say) pandas checks one by one, 5 us each."""


def writers() -> dict[type, Write]:
    pd = libraries.loaded("pandas", "DataFrame")
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


def _build_index(parts: Parts) -> Foreign:
    np = libraries.numpy()
    pd = libraries.pandas()
    (values,), (name,) = parts.runs
    check_column(values)
    dtype = values.dtype if isinstance(values, np.ndarray) else None
    index = pd.Index(values, dtype=dtype, name=name, copy=False)
    return index if parts.meta is None else _with_frequency(index, read_frequency(parts.meta))


def _with_frequency(index: Foreign, name: str) -> Foreign:
    pd = libraries.pandas()
    if is_slow(name) and len(index) > _LONGEST_CALENDAR:
        expect.malformed("a calendar frequency of a long index")
    if not isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
        expect.malformed("a frequency of an index without dates")
    return type(index)(index, freq=name)


def _write_range(encoder: Encoder, value: Foreign) -> Node:
    return ["rangeindex", [value.start, value.stop, value.step], [encoder.child(value.name)]]


def _build_range(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    start, stop, step = (_read_bound(bound) for bound in expect.items(parts.meta, 3))
    (name,) = parts.runs[0]
    return pd.RangeIndex(start, stop, step, name=name)


def _read_bound(meta: Json) -> int:
    return expect.integer(meta, -(2**62), 2**62)


def _write_multi(encoder: Encoder, value: Foreign) -> Node:
    parts = (value.levels, value.codes, value.names)
    return ["multiindex", None, *(encoder.run(list(part)) for part in parts)]


def _build_multi(parts: Parts) -> Foreign:
    pd = libraries.pandas()
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


KINDS: dict[str, Kind] = {
    "index": Immutable(build=_build_index, runs=2, hashed=(1,), whole=True),
    "rangeindex": Immutable(build=_build_range, hashed=(0,), whole=True),
    "multiindex": Immutable(build=_build_multi, runs=3, hashed=(2,), whole=True),
}
