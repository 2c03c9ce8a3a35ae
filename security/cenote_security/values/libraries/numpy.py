"""Arrays, scalars and data types of numpy. Numbers are views of the region, without a copy; objects are children.

A data type from a jail is put together from a closed grammar, never parsed by numpy. Simple types are numpy's own
short names (`<f8`, `|S5`, `<M8[ns]`); others are `["sub", type, shape]` and
`["struct", itemsize, aligned, [[name, title, offset, type], ...]]`. Objects are in none of them.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.libraries import optional
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Limits, Node, NodeParts, Write
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


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
    np = optional.numpy()
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
    np = optional.numpy()
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


_LAST_CODE_POINT = 0x10FFFF
_FLAVOURS = ("ndarray", "matrix", "recarray")


def writers() -> dict[type, Write]:
    np = optional.loaded("numpy", "ma")
    if np is None:
        return {}
    arrays = (np.ndarray, np.memmap, np.matrix, np.recarray)
    return {**dict.fromkeys(arrays, _write_array), np.ma.MaskedArray: _write_masked}


def is_scalar(value: object) -> bool:
    """A scalar of numpy's own, such as `float64`: `list(array)` is full of them."""
    np = optional.loaded("numpy", "ma")
    return np is not None and issubclass(type(value), np.generic) and type(value).__module__ == "numpy"


def write_scalar(_encoder: Encoder, value: Foreign) -> Node:
    return ["npscalar", [dtype_meta(value.dtype), value.tobytes()[: value.dtype.itemsize].hex()]]


def _write_array(encoder: Encoder, value: Foreign) -> Node:
    np = optional.numpy()
    plain = np.asarray(value)
    if plain.dtype == object:
        return _write_objects(encoder, plain)
    dtype = dtype_meta(plain.dtype)
    if plain.nbytes > encoder.limits.region_bytes:  # a broadcast array takes no memory until it is copied
        raise UnsafeValueError(class_name(type(value)), f"{plain.nbytes} bytes")
    order = "F" if plain.flags.f_contiguous and not plain.flags.c_contiguous else "C"
    flavour = type(value).__name__ if type(value).__name__ in _FLAVOURS else "ndarray"
    where = encoder.buffer(_contiguous_bytes(plain, order), value)
    return ["array", [dtype, list(plain.shape), order, flavour, where]]


def _contiguous_bytes(array: Foreign, order: str) -> memoryview:
    np = optional.numpy()
    if not array.nbytes:
        return memoryview(b"")
    row_major = array.T if order == "F" else array
    return memoryview(np.ascontiguousarray(row_major).reshape(-1).view(np.uint8))


def _build_array(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    dtype_description, dimensions, order, flavour, where = expect.items(parts.meta, 5)
    limits = parts.source.limits
    dtype = read_dtype(dtype_description, limits)
    shape = read_shape(dimensions, sys.maxsize)
    buffer = parts.source.region.take(where)
    _check_extent(shape, dtype.itemsize, buffer.nbytes, limits)
    order = expect.choice(order, ("C", "F"))
    array = np.ndarray(shape, dtype, buffer, order=order) if buffer.nbytes else np.empty(shape, dtype)
    check_content(array)
    match expect.choice(flavour, _FLAVOURS):
        case "matrix":
            return array.view(np.matrix)
        case "recarray":
            return array.view(np.recarray)
    return array


def _check_extent(shape: tuple[int, ...], itemsize: int, size: int, limits: Limits) -> None:
    """The bytes that came must be exactly those of the shape; where that is none, another bound holds."""
    if math.prod(shape) * itemsize != size:
        expect.malformed("the size of an array is not that of its buffer")
    if not size and math.prod(d for d in shape if d) * max(itemsize, 1) > limits.empty_extent:
        expect.malformed("an array without content has large dimensions")


def check_content(array: Foreign) -> None:
    """Raises MalformedValueError for bytes that numpy takes for granted never to see.

    A boolean of another byte than 0 and 1 makes counting and copying disagree when it is used as a mask; a
    character beyond Unicode cannot become text.
    """
    np = optional.numpy()
    dtype = array.dtype
    if dtype.names is not None:
        for name in dtype.names:
            check_content(array[name])
    elif dtype.kind == "b":
        if array.view(np.uint8).max(initial=0) > 1:
            expect.malformed("a boolean is neither 0 nor 1")
    elif dtype.kind == "U" and dtype.itemsize:
        codes = array.view(np.dtype((f"{dtype.byteorder}u4", (dtype.itemsize // 4,))))
        if codes.max(initial=0) > _LAST_CODE_POINT:
            expect.malformed("a character beyond Unicode")


def _write_objects(encoder: Encoder, value: Foreign) -> Node:
    if value.size > encoder.limits.brackets:
        raise UnsafeValueError("numpy.ndarray", f"{value.size} objects")
    return ["objects", list(value.shape), encoder.run(value.ravel().tolist())]


def _build_objects(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    shape = read_shape(parts.meta, sys.maxsize)
    elements = parts.runs[0]
    _check_extent(shape, 1, len(elements), parts.source.limits)
    # `fromiter` does not look into the elements, as every other way to fill an array would.
    return np.fromiter(elements, dtype=object, count=len(elements)).reshape(shape)


def _build_scalar(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    description, digits = expect.items(parts.meta, 2)
    limits = parts.source.limits
    dtype = read_dtype(description, limits)
    content = bytearray.fromhex(expect.text(digits, 2 * limits.item_bytes))
    _check_extent((), dtype.itemsize, len(content), limits)
    array = np.ndarray((), dtype, content) if content else np.zeros((), dtype)
    check_content(array)
    return array[()]


def _write_masked(encoder: Encoder, value: Foreign) -> Node:
    np = optional.numpy()
    data = np.asarray(value.data)
    dtype_meta(data.dtype)  # masks of objects are not supported by numpy's own arithmetic either
    mask = None if value.mask is np.ma.nomask else value.mask
    filler = np.asarray(value.fill_value)
    return ["masked", [value.hardmask], [encoder.child(data), encoder.child(mask), encoder.child(filler)]]


def _build_masked(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    (hard,) = expect.items(parts.meta, 1)
    data, mask, filler = expect.children(parts, 3)
    numeric = (np.ndarray, type(None))
    if type(data) is not np.ndarray or type(filler) is not np.ndarray or not isinstance(mask, numeric):
        expect.malformed("expected arrays")
    if data.dtype.hasobject or filler.shape or filler.dtype.kind != data.dtype.kind:
        expect.malformed("a masked array of objects, or of two types")
    if mask is not None and (mask.shape != data.shape or mask.dtype != np.ma.make_mask_descr(data.dtype)):
        expect.malformed("the mask of an array does not fit it")
    chosen = np.ma.nomask if mask is None else mask
    return np.ma.MaskedArray(
        data, mask=chosen, fill_value=filler[()], hard_mask=expect.flag(hard), copy=False
    )


KINDS: dict[str, Kind] = {
    "array": Immutable(build=_build_array, runs=0),
    "npscalar": Immutable(build=_build_scalar, runs=0),
    "objects": Immutable(build=_build_objects, whole=True, frail=True),
    "masked": Immutable(build=_build_masked, whole=True),
}
