"""Series and DataFrames of Polars: their columns as Arrow arrays, of the types that Polars itself gives out.

Polars takes some types for its own by the metadata of fields, one of them for pointers to objects, and panics over
others. So no metadata passes, and no type but those that it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.libraries import optional
from cenote_security.values.libraries.arrow import (
    MAX_FIELDS,
    array_meta,
    child_types,
    children,
    read_array,
    read_type,
    type_meta,
)
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, NodeParts, Write

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_FLAT = (
    *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("halffloat", "float", "double", "date32[day]", "time64[ns]", "large_string", "large_binary"),
)
_UNITS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_INDEXES = ("uint8", "uint16", "uint32")
_MOST_DAYS = 95_000_000
"""Days from 1970. Polars panics when it shows what is beyond the year 262,142, and a panic is no `Exception`."""


def writers() -> dict[type, Write]:
    pl = optional.loaded("polars", "using_string_cache")
    return {} if pl is None else {pl.Series: _write_series, pl.DataFrame: _write_frame}


def _write_series(encoder: Encoder, value: Foreign) -> Node:
    return ["polars", ["series", [_column_meta(encoder, value)]]]


def _write_frame(encoder: Encoder, value: Foreign) -> Node:
    if value.width > MAX_FIELDS or (value.height and not value.width):
        raise UnsafeValueError("polars.DataFrame", f"of {value.width} columns")
    return ["polars", ["frame", [_column_meta(encoder, column) for column in value.iter_columns()]]]


def _column_meta(encoder: Encoder, column: Foreign) -> Json:
    """`[name, type, content, categories of an Enum or null]`."""
    pl, pa = optional.polars(), optional.pyarrow()
    categories: Json = column.dtype.categories.to_list() if isinstance(column.dtype, pl.Enum) else None
    try:
        array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
        kind = _plain(array.type)
    except pa.ArrowException:
        kind = None  # such as 128-bit integers
    if kind is None or _series(pa.array([], kind), categories).dtype != column.dtype:
        raise UnsafeValueError("polars.Series", f"a column of type {column.dtype!s:.100}; cast it")
    return [column.name, type_meta(kind), array_meta(encoder, array), categories]


def _plain(kind: Foreign) -> Foreign:
    """The type without names and metadata that Polars does not look at; None if Polars gives out no such type."""
    pa = optional.pyarrow()
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return None
    if str(kind) in _FLAT or types.is_decimal128(kind):
        return kind
    if types.is_timestamp(kind) or types.is_duration(kind):
        return kind if kind.unit in _UNITS else None
    if types.is_dictionary(kind):
        texts = str(kind.index_type) in _INDEXES and types.is_large_string(kind.value_type)
        return pa.dictionary(kind.index_type, kind.value_type) if texts else None
    return _plain_nested(kind)


def _plain_nested(kind: Foreign) -> Foreign:
    pa = optional.pyarrow()
    parts = [_plain(child) for child in child_types(kind)]
    if not parts or None in parts:
        return None
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, part) for i, part in enumerate(parts)])
    if pa.types.is_large_list(kind):
        return pa.large_list(parts[0])
    return pa.list_(parts[0], kind.list_size) if pa.types.is_fixed_size_list(kind) else None


def _series(array: Foreign, categories: Foreign) -> Foreign:
    pl = optional.polars()
    series = pl.from_arrow(array)
    return series if categories is None else series.cast(pl.Enum(categories))


def _build(parts: NodeParts) -> Foreign:
    pl = optional.polars()
    what, metas = expect.items(parts.meta, 2)
    if len(expect.items(metas)) > MAX_FIELDS:
        expect.malformed(f"more than {MAX_FIELDS} columns")
    columns = [_read_column(meta, parts) for meta in expect.items(metas)]
    if expect.choice(what, ("series", "frame")) == "frame":
        return pl.DataFrame(columns)
    return columns[0] if len(columns) == 1 else expect.malformed("a series is one column")


def _read_column(meta: Json, parts: NodeParts) -> Foreign:
    name, kind_meta, content, categories = expect.items(meta, 4)
    kind = read_type(kind_meta)
    plain = _plain(kind)
    if plain is None or not plain.equals(kind, check_metadata=True):
        expect.malformed("expected a type of Polars")
    array = read_array(kind, content, parts)
    _check_days(array)
    names = None if categories is None else expect.names(categories)
    return _series(array, names).alias(expect.text(name, parts.source.limits.header_bytes))


def _check_days(array: Foreign) -> None:
    """Dates and times are within what Polars can show."""
    pa = optional.pyarrow()
    kind, types = array.type, pa.types
    for part in children(array):
        _check_days(part)
    if types.is_date(kind) or types.is_timestamp(kind):
        most = _MOST_DAYS * (1 if types.is_date(kind) else 86_400 * _UNITS[kind.unit])
        numbers = array.view(pa.int32() if types.is_date(kind) else pa.int64())
        found = pa.compute.min_max(numbers).as_py()
        if numbers.null_count < len(numbers) and not -most <= found["min"] <= found["max"] <= most:
            expect.malformed("a date is too far from ours")


KINDS: dict[str, Kind] = {"polars": Immutable(build=_build, runs=0)}
