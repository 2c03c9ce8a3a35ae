"""Arrays and scalars of numpy. Numbers are views of the region, without a copy; objects are children."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect, libraries
from cenote_security.values.dtypes import dtype_meta, read_dtype, read_shape
from cenote_security.values.limits import Limits
from cenote_security.values.node import Foreign, Immutable, Kind, Node, Parts, Write
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_LAST_CODE_POINT = 0x10FFFF
_FLAVOURS = ("ndarray", "matrix", "recarray")


def writers() -> dict[type, Write]:
    np = libraries.loaded("numpy", "ma")
    if np is None:
        return {}
    arrays = (np.ndarray, np.memmap, np.matrix, np.recarray)
    return {**dict.fromkeys(arrays, _write_array), np.ma.MaskedArray: _write_masked}


def is_scalar(value: object) -> bool:
    """A scalar of numpy's own, such as `float64`: `list(array)` is full of them."""
    np = libraries.loaded("numpy", "ma")
    return np is not None and issubclass(type(value), np.generic) and type(value).__module__ == "numpy"


def write_scalar(_encoder: Encoder, value: Foreign) -> Node:
    return ["npscalar", [dtype_meta(value.dtype), value.tobytes()[: value.dtype.itemsize].hex()]]


def _write_array(encoder: Encoder, value: Foreign) -> Node:
    np = libraries.numpy()
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
    np = libraries.numpy()
    if not array.nbytes:
        return memoryview(b"")
    row_major = array.T if order == "F" else array
    return memoryview(np.ascontiguousarray(row_major).reshape(-1).view(np.uint8))


def _build_array(parts: Parts) -> Foreign:
    np = libraries.numpy()
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
    np = libraries.numpy()
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


def _build_objects(parts: Parts) -> Foreign:
    np = libraries.numpy()
    shape = read_shape(parts.meta, sys.maxsize)
    elements = parts.runs[0]
    _check_extent(shape, 1, len(elements), parts.source.limits)
    # `fromiter` does not look into the elements, as every other way to fill an array would.
    return np.fromiter(elements, dtype=object, count=len(elements)).reshape(shape)


def _build_scalar(parts: Parts) -> Foreign:
    np = libraries.numpy()
    description, digits = expect.items(parts.meta, 2)
    limits = parts.source.limits
    dtype = read_dtype(description, limits)
    content = bytearray.fromhex(expect.text(digits, 2 * limits.item_bytes))
    _check_extent((), dtype.itemsize, len(content), limits)
    array = np.ndarray((), dtype, content) if content else np.zeros((), dtype)
    check_content(array)
    return array[()]


def _write_masked(encoder: Encoder, value: Foreign) -> Node:
    np = libraries.numpy()
    data = np.asarray(value.data)
    dtype_meta(data.dtype)  # masks of objects are not supported by numpy's own arithmetic either
    mask = None if value.mask is np.ma.nomask else value.mask
    filler = np.asarray(value.fill_value)
    return ["masked", [value.hardmask], [encoder.child(data), encoder.child(mask), encoder.child(filler)]]


def _build_masked(parts: Parts) -> Foreign:
    np = libraries.numpy()
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
