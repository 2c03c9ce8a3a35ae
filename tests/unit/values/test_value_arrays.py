"""Arrays of numpy keep type, shape and order, and use the received memory in place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from cenote_security.errors import UnsafeValueError
from cenote_security.sealed_memory import SealedMemory
from cenote_security.values import Limits, decode, encode

np = pytest.importorskip("numpy")

RECORD = np.dtype([("a", "i4"), ("b", "f8", (2, 2)), ("c", "U3"), ("d", "?"), ("e", [("x", ">i2")])])
ALIGNED = np.dtype([("a", "i1"), ("b", "i8")], align=True)


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.header, encoded.region())


def same(left: Any, right: Any) -> bool:
    return (type(left), left.dtype, left.shape, left.tobytes()) == (
        type(right), right.dtype, right.shape, right.tobytes())  # fmt: skip


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3), np.array(5), np.array([]), np.zeros((0, 3)), np.arange(10)[::2], np.arange(10)[::-1],
        np.arange(24.0).reshape(2, 3, 4), np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        np.broadcast_to(np.int8(1), (3, 4)), np.array(["ab", "c"]), np.array(["", ""]), np.array([b"x\0y"]),
        np.array([True, False]), np.array(["2020-01-01", "NaT"], "M8[D]"), np.array([1, 2], "m8[25s]"),
        np.array([1, 2], ">i4"), np.array([1.5], ">f8"), np.array(["é"], ">U2"), np.array([1j], "c8"),
        np.float16([1.5]), np.longdouble([1.5]), np.zeros(2, RECORD), np.zeros(2, ALIGNED),
        np.zeros(2, np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 16})),
        np.ones((1, 2)).view(np.matrix), np.zeros(3, "V5"),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros(5, "S0"),
    ],
    ids=lambda array: f"{array.dtype!s:.20} {array.shape}",
)  # fmt: skip
def test_an_array_comes_back_equal(array: Any) -> None:
    """The same bytes under the same type and shape."""
    assert same(array, roundtrip(array))


def test_the_order_in_memory_is_kept() -> None:
    """A column-major array is neither transposed nor copied."""
    assert roundtrip(np.asfortranarray(np.ones((2, 3)))).flags.f_contiguous


def test_a_memory_map_becomes_an_array(tmp_path: Any) -> None:
    """A file in a jail does not exist outside."""
    array = np.memmap(tmp_path / "f", dtype="i4", shape=(2,), mode="w+")
    assert type(roundtrip(array)) is np.ndarray


def test_encoding_does_not_copy() -> None:
    """The pieces are views of the array itself."""
    array = np.zeros(1000)
    encoded = encode(array)
    array[0] = 1
    assert np.frombuffer(encoded.region())[0] == 1


def test_decoding_uses_the_map_in_place() -> None:
    """A rebuilt array is writable and private, and keeps its memory alive."""
    encoded = encode([np.arange(1000), np.arange(1000)])
    with SealedMemory.create(encoded.pieces) as memory:
        first: Any = decode(encoded.header, memory.map())
        second: Any = decode(encoded.header, memory.map())
    assert all(array.flags.aligned and array.flags.writeable for array in first)
    first[0][:] = -1
    assert 0 == second[0][0] == first[1][0]


def test_small_values_are_writable_too() -> None:
    """Also if they came as immutable bytes inside a message."""
    found = roundtrip(np.arange(3))
    found[0] = 9
    assert 9 == found[0]


def test_an_array_that_is_reached_twice_is_one_array() -> None:
    """Its content is sent once."""
    array = np.zeros(1000)
    encoded = encode([array, array])
    found: Any = decode(encoded.header, encoded.region())
    assert found[0] is found[1]
    assert encoded.size == array.nbytes


def test_a_broadcast_array_counts_as_what_it_becomes() -> None:
    """It takes no memory until it is sent."""
    with pytest.raises(UnsafeValueError, match="1000000000 bytes"):
        encode(np.broadcast_to(np.int8(1), (1000, 1_000_000)), limits=Limits(region_bytes=10**6))


def test_an_array_of_objects_is_a_list_of_values() -> None:
    """Each element is encoded as its own type; nothing is pickled."""
    array = np.array([1, "a", None, [1], (2,), {"x": 1.5}], dtype=object).reshape(2, 3)
    found = roundtrip(array)
    assert (object, (2, 3), array.tolist()) == (found.dtype, found.shape, found.tolist())


def test_elements_that_look_like_sequences_stay_elements() -> None:
    """Lists of equal length do not become another dimension."""
    array = np.empty(2, dtype=object)
    array[:] = [[1, 2], [3, 4]]
    assert (2,) == roundtrip(array).shape


def test_arrays_of_arrays() -> None:
    """A ragged array: objects that are arrays, also of objects."""
    array = np.empty(2, dtype=object)
    array[0], array[1] = np.arange(3), np.array(["a", None], dtype=object)
    found = roundtrip(array)
    assert [[0, 1, 2], ["a", None]] == [part.tolist() for part in found]


def test_an_array_of_unsafe_objects_is_refused() -> None:
    """An object dtype does not bypass the list of classes."""
    with pytest.raises(UnsafeValueError, match="builtin_function"):
        encode(np.array([len], dtype=object))


def test_objects_in_records_are_refused() -> None:
    """A pointer in a structure could point anywhere."""
    with pytest.raises(UnsafeValueError, match=r"numpy\.ndarray"):
        encode(np.zeros(1, [("a", "O")]))


@pytest.mark.parametrize(
    "array",
    [
        np.ma.array([1, 2, 3], mask=[0, 1, 0], fill_value=9), np.ma.array([1.5, 2.5]),
        np.ma.array([1, 2], mask=[1, 0], hard_mask=True), np.ma.array([(1, 2)], "i4,i4", mask=[(0, 1)]),
        np.ma.array(["a", "b"], mask=[1, 0], fill_value="z"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_masked_array_comes_back(array: Any) -> None:
    """Data, mask (or none), fill value and hardness."""
    found = roundtrip(array)
    assert same(array.data, found.data)
    assert np.array_equal(array.mask, found.mask)
    assert (array.fill_value, array.hardmask) == (found.fill_value, found.hardmask)


@pytest.mark.parametrize(
    "scalar",
    [
        np.float64(1.5), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.str_("aé"), np.str_(""),
        np.bytes_(b"x"), np.datetime64("2020-01-01"), np.timedelta64(5, "m"), np.complex64(1j),
        np.longdouble(1.5), np.array([(1, 2.0)], "i4,f8")[0],
    ],
    ids=repr,
)  # fmt: skip
def test_a_scalar_comes_back_equal(scalar: Any) -> None:
    """Numpy's own scalars stay numpy's."""
    found = roundtrip([scalar])[0]
    assert (type(scalar), scalar.dtype, scalar) == (type(found), found.dtype, found)


DTYPES = st.one_of(
    npst.boolean_dtypes(), npst.integer_dtypes(), npst.floating_dtypes(), npst.complex_number_dtypes(),
    npst.datetime64_dtypes(), npst.timedelta64_dtypes(), npst.unicode_string_dtypes(max_len=5),
    npst.byte_string_dtypes(max_len=5), npst.array_dtypes(npst.integer_dtypes(), max_size=3),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_array_comes_back_equal(data: st.DataObject) -> None:
    """Any type, any shape, any slice."""
    dtype = data.draw(DTYPES)
    array = data.draw(npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
    if array.ndim:
        array = array[data.draw(npst.basic_indices(array.shape, allow_newaxis=True))]
    array = np.asarray(array)
    assert same(array, roundtrip(array))
