"""Small numpy arrays and numbers stored as bindings: programs cannot tell the rebuilt ones from the originals."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cenote_worker.jail.snapshots.deltas.numpy_arrays import (
    MOST_BYTES,
    describe_array,
    is_plain,
    rebuild_array,
)

TYPES = st.sampled_from(["f8", "f4", "i8", "i1", "u2", "?", "c16"])


def seen(value: Any) -> object:
    """Everything that a program can see of an array, except its address."""
    if not isinstance(value, np.ndarray):
        return type(value), value.tobytes()
    base = None if value.base is None else seen(value.base)
    return value.dtype, value.shape, value.strides, str(value.flags), value.tobytes(), base


@given(
    arrays.arrays(TYPES, arrays.array_shapes(min_dims=0, min_side=0, max_side=4)),
    st.sampled_from(["itself", "T", "reshape", "F", "read-only"]),
)
def test_an_array_comes_back_with_its_layout(value: Any, way: str) -> None:
    """NaN payloads and signs included, and the layout of the array that it is a view of."""
    value = value.copy()
    if way == "T":
        value = value.T
    elif way == "reshape":
        value = value.reshape(-1)
    elif way == "F":
        value = np.asfortranarray(value)
    value.flags.writeable = way != "read-only"
    told = describe_array(value)
    assert told is not None or value.size < 2 or value.base is None
    if told is not None:
        assert seen(value) == seen(rebuild_array(told))


@pytest.mark.parametrize(
    "value", [np.float64(-0.0), np.float32(np.nan), np.int8(3), np.True_, np.complex128(1j)]
)
def test_a_number_comes_back(value: Any) -> None:
    told = describe_array(value)
    assert told is not None
    assert seen(value) == seen(rebuild_array(told))
    assert (value is np.True_) == (rebuild_array(told) is np.True_)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6)[1:],
        lambda: np.arange(6)[::-1],
        lambda: np.broadcast_to(np.arange(3), (2, 3)),
        lambda: np.arange(8.0).reshape(2, 2, 2).transpose(1, 0, 2),
        lambda: np.arange(3, dtype=">i4"),
        lambda: np.array(["text"]),
        lambda: np.array([object()]),
        lambda: np.array(["2026-01-01"], "M8[D]"),
        lambda: np.zeros(2, [("a", "i4")]),
        lambda: np.zeros(2, np.dtype("i4", metadata={"a": 1})),
        lambda: np.ma.masked_array([1, 2]),
        lambda: np.frombuffer(bytearray(8)),
        lambda: np.str_("text"),
        lambda: [1],
    ],
)
def test_what_is_not_told(make: Any) -> None:
    """Sections of memory, memory with other owners, other types, other classes."""
    assert describe_array(make()) is None


def test_an_array_that_others_know_is_not_told() -> None:
    value = np.arange(6).reshape(2, 3)
    assert describe_array(value) is not None
    base = value.base
    assert describe_array(value) is None
    del base
    assert is_plain(value)
    known = weakref.ref(value)
    assert describe_array(value) is None
    assert not is_plain(value)
    assert known() is value


def test_as_many_bytes_as_may_be() -> None:
    assert describe_array(np.zeros(MOST_BYTES, "u1")) is not None
    assert describe_array(np.zeros(MOST_BYTES + 1, "u1")) is None
