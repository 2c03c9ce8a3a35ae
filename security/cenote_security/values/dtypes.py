"""Data types of numpy as data. A type from a jail is put together from a closed grammar, never parsed by numpy.

Simple types are numpy's own short names (`<f8`, `|S5`, `<M8[ns]`); others are `["sub", type, shape]` and
`["struct", itemsize, aligned, [[name, title, offset, type], ...]]`. Objects are in none of them.
"""

from __future__ import annotations

import re

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect, libraries
from cenote_security.values.limits import Limits
from cenote_security.values.node import Foreign, Json

_SIMPLE = re.compile(
    r"[<>|](?:"
    r"b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)"
    r"|[SUV]\d{1,8}"
    r"|[mM]8(?:\[[1-9]?\d{0,5}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
    r")"
)
_MAX_NESTING = 8
_MAX_FIELDS = 1000
_MAX_DIMENSIONS = 32


def dtype_meta(dtype: Foreign, nesting: int = _MAX_NESTING) -> Json:
    """The description of a data type. Raises UnsafeValueError for types that hold objects or are not numpy's."""
    if dtype.hasobject or not nesting:
        raise UnsafeValueError("numpy.ndarray", f"of data type {dtype!s:.100}")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return ["sub", dtype_meta(base, nesting - 1), list(shape)]
    if dtype.names is not None:
        fields: Json = [
            [name, _title(dtype, name), dtype.fields[name][1], dtype_meta(dtype[name], nesting - 1)]
            for name in dtype.names
        ]
        return ["struct", dtype.itemsize, dtype.isalignedstruct, fields]
    name: str = dtype.str
    if not _SIMPLE.fullmatch(name):
        raise UnsafeValueError("numpy.ndarray", f"of data type {dtype!s:.100}")
    return name


def _title(dtype: Foreign, name: str) -> str | None:
    _, _, *title = dtype.fields[name]
    if title and not isinstance(title[0], str):
        raise UnsafeValueError("numpy.ndarray", "the title of a field is not text")
    return title[0] if title else None


def read_dtype(meta: Json, limits: Limits, nesting: int = _MAX_NESTING) -> Foreign:
    """The data type that was described."""
    np = libraries.numpy()
    if type(meta) is str:
        if not _SIMPLE.fullmatch(meta):
            expect.malformed("expected a data type")
        dtype = np.dtype(meta)
    elif type(meta) is list and nesting:
        dtype = _read_compound(meta, limits, nesting - 1)
    else:
        expect.malformed("expected a data type")
    if dtype.itemsize > limits.item_bytes:
        expect.malformed(f"elements of more than {limits.item_bytes} bytes")
    return dtype


def _read_compound(meta: list[Json], limits: Limits, nesting: int) -> Foreign:
    np = libraries.numpy()
    if meta[:1] == ["sub"]:
        _, base, shape = expect.items(meta, 3)
        return np.dtype((read_dtype(base, limits, nesting), read_shape(shape, limits.item_bytes)))
    _, itemsize, aligned, fields = expect.items(meta, 4)
    if len(expect.items(fields)) > _MAX_FIELDS or meta[0] != "struct":
        expect.malformed("expected the fields of a data type")
    columns = [expect.items(field, 4) for field in expect.items(fields)]
    description = {
        "names": expect.names([name for name, _, _, _ in columns]),
        "offsets": [expect.integer(offset, 0, limits.item_bytes) for _, _, offset, _ in columns],
        "titles": [None if title is None else expect.text(title) for _, title, _, _ in columns],
        "formats": [read_dtype(form, limits, nesting) for _, _, _, form in columns],
        "itemsize": expect.integer(itemsize, 0, limits.item_bytes),
    }
    return np.dtype(description, align=expect.flag(aligned))


def read_shape(meta: Json, largest: int) -> tuple[int, ...]:
    """Dimensions, each from 0 to `largest`."""
    shape = expect.items(meta)
    if len(shape) > _MAX_DIMENSIONS:
        expect.malformed(f"more than {_MAX_DIMENSIONS} dimensions")
    return tuple(expect.integer(dimension, 0, largest) for dimension in shape)
