"""Series, frames, indexes and columns of pandas come back equal, types and names included."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as pdst

from cenote_security.errors import UnsafeValueError
from cenote_security.sealed_memory import SealedMemory
from cenote_security.values import decode, encode

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.header, encoded.region())


SERIES = {
    "int": pd.Series([1, 2], name="x"),
    "tuple name": pd.Series([1.5], name=("a", 1)),
    "text": pd.Series(["a", None, "é"]),
    "objects": pd.Series(["a", 1, None, (1,), [2]], dtype=object),
    "objects that look like text": pd.Series(["a", "b"], dtype=object),
    "lists": pd.Series([[1], ["b"]]),
    "nullable int": pd.Series([1, None], dtype="Int64"),
    "nullable bool": pd.Series([True, None], dtype="boolean"),
    "nullable float": pd.Series([1.5, None], dtype="Float32"),
    "string": pd.Series(["a", None], dtype="string"),
    "string python": pd.Series(["a", None], dtype=pd.StringDtype("python")),
    "string pyarrow": pd.Series(["a", None], dtype=pd.StringDtype("pyarrow")),
    "arrow int": pd.Series([1, None], dtype="int64[pyarrow]"),
    "arrow text": pd.Series(["a", None], dtype="string[pyarrow]"),
    "category": pd.Series(pd.Categorical(["a", "b", None, "a"], ordered=True)),
    "category of ints": pd.Series(pd.Categorical([3, 1, 3], categories=[3, 2, 1])),
    "dates": pd.Series(pd.date_range("2020", periods=3)),
    "dates in seconds": pd.Series(np.array(["2020-01-01", "NaT"], "M8[s]")),
    "zoned dates": pd.Series(pd.date_range("2020-10-25", periods=4, freq="h", tz=ZoneInfo("Europe/Berlin"))),
    "utc dates": pd.Series(pd.DatetimeIndex(["2020-01-01", None], tz=UTC)),
    "durations": pd.Series(pd.to_timedelta([1, None], unit="s")),
    "periods": pd.Series(pd.period_range("2020", periods=3, freq="M")),
    "intervals": pd.Series(pd.interval_range(0, 3, closed="both")),
    "complex": pd.Series([1j]),
    "empty": pd.Series([], dtype=float),
    "two levels": pd.Series([1, 2], pd.MultiIndex.from_tuples([(1, "a"), (2, None)], names=["x", ("y", 1)])),
    "bool": pd.Series([True, False]),
}
if hasattr(pd.StringDtype("python"), "na_value") and pd.__version__ >= "3":
    SERIES["str python"] = pd.Series(["a", None], dtype=pd.StringDtype("python", na_value=np.nan))

INDEXES = {
    "int": pd.Index([1, 2]),
    "uint8": pd.Index([1, 2], dtype="uint8"),
    "text": pd.Index(["a", "b"]),
    "objects": pd.Index(["a", 1, (1, 2)], dtype=object),
    "float": pd.Index([1.5, np.nan]),
    "bool": pd.Index([True, False]),
    "nullable": pd.Index([1, None], dtype="Int64"),
    "range": pd.RangeIndex(3, 20, 2, name="q"),
    "days": pd.date_range("2020", periods=5, freq="D", tz="UTC"),
    "quarters": pd.date_range("2020", periods=5, freq="QE-NOV", name="d"),
    "business days": pd.date_range("2020", periods=5, freq="B", tz=ZoneInfo("US/Eastern")),
    "three hours": pd.date_range("2020", periods=5, freq="3h"),
    "irregular": pd.DatetimeIndex(["2020-01-01", None]),
    "durations": pd.timedelta_range("1D", periods=3),
    "weeks": pd.period_range("2020", periods=3, freq="W-SUN"),
    "years": pd.period_range("2020", periods=3, freq="Y-MAR"),
    "intervals": pd.interval_range(0, 5, closed="left"),
    "intervals of dates": pd.interval_range(pd.Timestamp("2020"), periods=2),
    "category": pd.CategoricalIndex(["a", "b", "a"], name="c"),
    "product": pd.MultiIndex.from_product([[1, 2], ["a", "b"], pd.date_range("2020", periods=2)]),
    "empty": pd.Index([], dtype=object),
}

FRAMES = {
    "mixed": pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, np.nan], "d": [True, False]}),
    "block": pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"]),
    "names that repeat": pd.DataFrame([[1, "a", 2.0, 3]], columns=["a", "a", "b", "b"]),
    "nothing": pd.DataFrame(),
    "rows only": pd.DataFrame(index=[1, 2]),
    "columns only": pd.DataFrame(columns=["a", "b"]),
    "dates as index": pd.DataFrame({"a": [1]}, index=pd.date_range("2020", periods=1, freq="D")),
    "names of columns": pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_product([["a"], [1, 2]], names=["x", "y"])
    ),
    "one of each": pd.DataFrame({name: series.reset_index(drop=True) for name, series in SERIES.items()}),
    "durations": pd.DataFrame({"a": pd.to_timedelta([1]), "b": pd.to_timedelta([2])}),
    "dates": pd.DataFrame({"a": pd.to_datetime(["2020"]), "b": pd.to_datetime(["2021"])}),
}

SCALARS = [
    pd.Timestamp("2020-01-01"), pd.Timestamp("2020-10-25 01:30", tz="UTC").tz_convert(ZoneInfo("Europe/Berlin")),
    pd.Timestamp("2020-01-01 00:00:00.123456789"), pd.Timestamp.max, pd.Timedelta("1D 2ns"), pd.Timedelta.min,
    pd.Period("2020-01", "M"), pd.Period("2020", "W-SUN"), pd.Interval(1, 2, "both"),
    pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021")),
]  # fmt: skip


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_a_series_comes_back_equal(series: Any) -> None:
    """Alone, as the column of a frame, and as the bare array inside it."""
    pd.testing.assert_series_equal(series, roundtrip(series), check_freq=True)
    pd.testing.assert_frame_equal(series.to_frame("c"), roundtrip(series.to_frame("c")))
    assert type(series.array) is type(roundtrip(series.array))


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_an_index_comes_back_equal(index: Any) -> None:
    """Class, type, names, and the frequency where there is one."""
    found = roundtrip(index)
    pd.testing.assert_index_equal(index, found, exact=True)
    assert (index.names, getattr(index, "freq", None)) == (found.names, getattr(found, "freq", None))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_comes_back_equal(frame: Any) -> None:
    """Columns, their types, both axes."""
    found = roundtrip(frame)
    pd.testing.assert_frame_equal(frame, found, check_freq=True)
    assert list(frame.dtypes) == list(found.dtypes)


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
def test_a_scalar_comes_back_equal(scalar: Any) -> None:
    """Also its unit and its zone."""
    found = roundtrip(scalar)
    assert (type(scalar), scalar, str(scalar)) == (type(found), found, str(found))
    assert getattr(scalar, "unit", None) == getattr(found, "unit", None)


def test_missing_values_are_themselves() -> None:
    """They are compared by identity."""
    found = roundtrip([pd.NaT, pd.NA])
    assert found[0] is pd.NaT
    assert found[1] is pd.NA


def test_attributes_come_along() -> None:
    """Attributes of a frame are data too."""
    frame = pd.DataFrame({"a": [1]})
    frame.attrs = {"source": ["x"]}
    assert {"source": ["x"]} == roundtrip(frame).attrs


def test_a_frame_uses_the_map_in_place() -> None:
    """Nothing is copied in either direction; writes stay private."""
    frame = pd.DataFrame({"a": np.arange(1000.0), "b": np.arange(1000)})
    encoded = encode(frame)
    assert any(np.shares_memory(np.frombuffer(p, np.uint8), frame["a"].to_numpy()) for p in encoded.pieces)
    with SealedMemory.create(encoded.pieces) as memory:
        view = memory.map()
        found: Any = decode(encoded.header, view)
        assert np.shares_memory(np.frombuffer(view, np.uint8), found["a"].to_numpy())
        found.loc[0, "a"] = -1.0
        pd.testing.assert_frame_equal(frame, decode(encoded.header, memory.map()))


def test_an_index_that_is_shared_is_sent_once() -> None:
    """Two series over one index keep one index."""
    index = pd.Index(["a", "b"])
    found = roundtrip([pd.Series([1, 2], index), pd.Series([3, 4], index)])
    assert found[0].index.is_(found[1].index)


def test_columns_that_are_one_array_become_two() -> None:
    """A change of one does not change the other, as pandas promises."""
    column = pd.array([1, None], dtype="Int64")
    found = roundtrip(pd.DataFrame({"a": column, "b": column}, copy=False))
    found.loc[0, "a"] = 9
    assert 1 == found.loc[0, "b"]


@pytest.mark.parametrize(
    "value",
    [pd.Series(pd.arrays.SparseArray([0, 1])), pd.Series([len], dtype=object), pd.offsets.Day()],
    ids=["sparse", "function", "offset"],
)
def test_what_has_no_form_is_refused(value: Any) -> None:
    """With the class that is refused."""
    with pytest.raises(UnsafeValueError):
        roundtrip(value)


COLUMNS = [
    pdst.column("i", dtype="int64"),
    pdst.column("f", dtype="float32"),
    pdst.column("t", elements=st.text(max_size=5) | st.none(), dtype=object),
    pdst.column("d", dtype="datetime64[ns]"),
    pdst.column("b", dtype=bool),
]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(pdst.data_frames(COLUMNS), st.lists(st.integers(0, 4), max_size=6), st.slices(5))
def test_any_frame_comes_back_equal(frame: Any, order: list[int], rows: slice) -> None:
    """Any content, any choice of columns (also repeated), any rows."""
    part = frame.iloc[rows, order]
    pd.testing.assert_frame_equal(part, roundtrip(part), check_freq=True)
