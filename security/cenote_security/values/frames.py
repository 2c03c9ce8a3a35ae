"""Series and DataFrames of pandas, column by column, or as one block when all columns are numbers of one type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect, libraries
from cenote_security.values.node import Foreign, Immutable, Kind, Node, Parts, Write
from cenote_security.values.pandas_arrays import check_column, column_values

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

MAX_COLUMNS = 100_000
"""Of different types; each costs two kilobytes. A block of numbers may have any number."""


def writers() -> dict[type, Write]:
    pd = libraries.loaded("pandas", "DataFrame")
    if pd is None:
        return {}
    return {pd.Series: _write_series, pd.DataFrame: _write_frame}


def _write_series(encoder: Encoder, value: Foreign) -> Node:
    content = [encoder.child(column_values(value)), encoder.child(value.index)]
    return ["series", None, content, [encoder.child(value.name)], [_write_attributes(encoder, value)]]


def _write_attributes(encoder: Encoder, value: Foreign) -> Foreign:
    return encoder.child(value.attrs) if value.attrs else None


def _build_series(parts: Parts) -> Foreign:
    _, (name,), (attributes,) = parts.runs
    values, index = expect.children(parts, 2)
    return _with_attributes(_series(check_column(values), _index(index), name), attributes)


def _series(values: Foreign, index: Foreign, name: Foreign = None) -> Foreign:
    pd = libraries.pandas()
    if len(values) != len(index):
        expect.malformed("a column is not as long as its index")
    return pd.Series(values, index=index, dtype=values.dtype, name=name, copy=False)


def _index(value: Foreign) -> Foreign:
    pd = libraries.pandas()
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
    np = libraries.numpy()
    kinds = set(frame.dtypes)
    return (
        frame.shape[1] > 1
        and len(kinds) == 1
        and isinstance(kind := kinds.pop(), np.dtype)
        and not kind.hasobject
    )


def _axes(parts: Parts) -> tuple[Foreign, Foreign]:
    columns, index = expect.children(parts, 2)
    return _index(columns), _index(index)


def _build_block(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    columns, index = _axes(parts)
    (block,), (attributes,) = parts.runs[1:]
    check_column(block, "biufcmM", dimensions=2)
    return _with_attributes(pd.DataFrame(block, index=index, columns=columns, copy=False), attributes)


def _build_frame(parts: Parts) -> Foreign:
    pd = libraries.pandas()
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


KINDS: dict[str, Kind] = {
    "series": Immutable(build=_build_series, runs=3, hashed=(1,), whole=True),
    "block": Immutable(build=_build_block, runs=3, whole=True),
    "frame": Immutable(build=_build_frame, runs=3, whole=True),
}
