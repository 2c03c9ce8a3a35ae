"""Frames and series of Polars cross by their columns; what Polars would trust unchecked is refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from cenote_security.errors import MalformedValueError, UnsafeValueError
from cenote_security.values import decode, encode

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6)
ENUM = pl.Enum(["u", "v", "unused"])
COLUMNS = [
    pl.Series("int", [1, None, 3]),
    pl.Series("uint8", [1, 2, None], dtype=pl.UInt8),
    pl.Series("float", [1.5, None, float("inf")]),
    pl.Series("bool", [True, None, False]),
    pl.Series("text", ["a", None, "é€"]),
    pl.Series("bytes", [b"a", None, b"\xff"]),
    pl.Series("null", [None, None, None]),
    pl.Series("date", [MOMENT.date(), None, dt.date(1, 1, 1)]),
    pl.Series("time", [MOMENT.time(), None, dt.time(23, 59)]),
    pl.Series("moment", [MOMENT, None, dt.datetime(9999, 1, 1)]),
    pl.Series("ms", [MOMENT, None, MOMENT], dtype=pl.Datetime("ms")),
    pl.Series("zone", [MOMENT, None, MOMENT], dtype=pl.Datetime("ns", "Europe/Berlin")),
    pl.Series("span", [dt.timedelta(1), None, dt.timedelta(microseconds=-1)]),
    pl.Series("decimal", [Decimal("1.50"), None, Decimal("-2.25")]),
    pl.Series("category", ["u", None, "v"], dtype=pl.Categorical),
    pl.Series("enum", ["v", None, "u"], dtype=ENUM),
    pl.Series("list", [[1], None, [2, None]]),
    pl.Series("categories", [["u"], None, ["v", "u"]], dtype=pl.List(pl.Categorical)),
    pl.Series("array", [[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
    pl.Series("struct", [{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}]),
]


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.header, encoded.region())


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.name))
def test_a_series_comes_back_equal(column: Any) -> None:
    """Whole, sliced, empty, and in several chunks; with its name and its type."""
    for part in (column, column[1:], column[:0], column.append(column[:1])):
        found = roundtrip(part)
        assert (part.name, part.dtype) == (found.name, found.dtype)
        assert part.to_list() == found.to_list()


def test_a_frame_comes_back_equal() -> None:
    """All columns in their order; one without rows; one without anything; and within other values."""
    frame = pl.DataFrame([column.head(3) for column in COLUMNS])
    for value in (frame, frame.clear(), pl.DataFrame()):
        assert value.schema == roundtrip(value).schema
        assert value.equals(roundtrip({"a": [value]})["a"][0])


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("o", [object()], dtype=pl.Object),
        pl.Series("i", [1], dtype=pl.Int128),
        pl.Series("e", [["u"]], dtype=pl.List(ENUM)),
    ],
    ids=["object", "int128", "enum in a list"],
)
def test_a_type_that_would_not_come_back_is_named(column: Any) -> None:
    """Python objects, integers that Arrow does not have, categories inside other types."""
    with pytest.raises(UnsafeValueError, match="column of type"):
        encode(column.to_frame())


def forged(kind: Any, array: Any) -> tuple[bytes, bytes]:
    """A series of Polars that claims to be of this Arrow type, with the content of the array."""
    encoded = encode(array)
    version, _root, [(_tag, (_type, content))] = json.loads(encoded.header)
    node = ["polars", ["series", [["a", kind, content, None]]]]
    return json.dumps([version, [0], [node]]).encode(), encoded.region()


POINTER = {b"ARROW:extension:name": b"POLARS_EXTENSION_TYPE", b"ARROW:extension:metadata": b"1;2"}


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (["binary", 8], pa.array([b"pointers"], pa.binary(8))),
        (["decimal", 256, 60, 2], pa.array([Decimal(1)], pa.decimal256(60, 2))),
        ("month_day_nano_interval", pa.array([None], pa.month_day_nano_interval())),
        (
            ["large_list", ["item", "int64", True, [[k.decode(), v.decode()] for k, v in POINTER.items()]]],
            pa.array([[1]], pa.large_list(pa.int64())),
        ),
        ("date32[day]", pa.array([2**31 - 1], pa.int32()).cast(pa.date32())),
        (
            ["large_list", ["item", ["timestamp", "ms", None], True, None]],
            pa.array([[2**63 - 1]], pa.large_list(pa.int64())).cast(pa.large_list(pa.timestamp("ms"))),
        ),
        (["timestamp", "us", "Nowhere/City"], pa.array([1], pa.timestamp("us"))),
    ],
    ids=["fixed bytes", "decimal256", "interval", "metadata", "date", "moment in a list", "zone"],
)
def test_what_polars_would_trust_or_panic_over_is_refused(
    kind: Any, array: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Pointers as bytes or by metadata, types and dates that it panics on: an error, and no panic."""
    with pytest.raises(MalformedValueError):
        decode(*forged(kind, array))
    assert "panicked" not in capfd.readouterr().err


def test_the_forger_forges_what_is_read() -> None:
    """The same way of writing gives a series if nothing is wrong with it."""
    assert [1, 2] == decode(*forged("int64", pa.array([1, 2]))).to_list()
