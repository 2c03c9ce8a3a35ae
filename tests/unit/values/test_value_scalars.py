"""Single values of the standard library come back equal, with their type and all their digits."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_security.errors import UnsafeValueError
from cenote_security.values import ExceptionRecord, Limits, decode, encode


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.header, encoded.region())


BERLIN = ZoneInfo("Europe/Berlin")
VALUES = [
    None, True, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**1000, 1.5, -0.0, 1e308, 5e-324, math.inf,
    1 + 2j, "", "x", "ü€😀", "\x00\x1f\u2028", "\ud800", "\ud83d\ude00 as two", "long " * 1000, "\ud800" * 1000,
    b"", b"\x00\xff", b"x" * 10_000, bytearray(b"abc"), ..., range(0), range(10, 0, -3), range(2**80),
    slice(None), slice(1, "b", 2.5), Decimal("1.50"), Decimal("-0"), Decimal("1E+1000"), Decimal("Infinity"),
    UUID("12345678123456781234567812345678"), PurePosixPath("/a/b"), PureWindowsPath("C:\\a"), Path("a/b"),
    date(1, 1, 1), date(9999, 12, 31), datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime.max,
    datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 7, 1, tzinfo=BERLIN), time(1, 2, 3, 4),
    time(1, tzinfo=timezone(timedelta(hours=5, minutes=30), "IST")), timedelta(-1, 2, 3), timedelta.max, UTC,
    timezone(timedelta(seconds=-1)), BERLIN, ZoneInfo("America/Argentina/Buenos_Aires"), ZoneInfo("Etc/GMT+5"),
    Fraction(-1, 3), Fraction(1, 16**3500 - 1),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!a:.40}")
def test_a_scalar_comes_back_equal(value: Any) -> None:
    """Equal, of the same type, and with the same repr (which distinguishes -0.0 from 0.0, and 1.50 from 1.5)."""
    found = roundtrip(value)
    assert (type(value), value, repr(value)) == (type(found), found, repr(found))


def test_nan_stays_nan() -> None:
    """Not equal to itself, so it has a separate test; as float and as decimal."""
    assert math.isnan(roundtrip(math.nan))
    assert roundtrip(Decimal("sNaN12")).is_snan()


def test_the_second_two_o_clock_is_not_the_first() -> None:
    """`fold` is not part of equality, and decides which moment is meant."""
    late = datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
    assert late.utcoffset() == roundtrip(late).utcoffset()


def test_the_name_of_an_offset_is_kept() -> None:
    """A fixed offset with its own label."""
    assert "IST" == roundtrip(timezone(timedelta(hours=5), "IST")).tzname(None)


def test_long_text_is_sent_once() -> None:
    """A thousand references to one long text are sent as one text."""
    text = "x" * 10_000
    encoded = encode([text] * 1000)
    assert len(encoded.header) + encoded.size < 50_000


def test_an_exception_becomes_a_record() -> None:
    """A name and a text; nothing that could be raised."""
    assert ExceptionRecord(type="ValueError", message="no") == roundtrip(ValueError("no"))


def test_the_text_of_an_exception_is_bounded() -> None:
    """A message of a million characters arrives as ten thousand."""
    assert 10_000 == len(roundtrip(ValueError("x" * 1_000_000)).message)


class OwnZone(tzinfo):
    """A zone that only its own code defines."""


class OwnText(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (len, "builtin_function_or_method"),
        (lambda: 0, "function"),
        (math, "module"),
        ((i for i in ()), "generator"),
        (open("/dev/null"), "_io.TextIOWrapper"),  # noqa: SIM115
        (int, "type"),
        ({}.keys(), "dict_keys"),
        (memoryview(b""), "memoryview"),
        (object(), "object"),
        (OwnText("a"), f"{__name__}.OwnText"),
        (datetime(2024, 1, 1, tzinfo=OwnZone()), f"{__name__}.OwnZone"),
        (slice(slice(1)), "slice"),
        (Decimal("1E+100001"), "decimal.Decimal"),
        (Fraction(16**3500), "fractions.Fraction"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_data_is_refused_by_name(value: Any, name: str) -> None:
    """The error names the class that cannot leave a jail, wherever it is in the value."""
    with pytest.raises(UnsafeValueError) as caught:
        encode({"deep": [(value,)]})
    assert name == caught.value.class_name


def test_integers_have_a_longest() -> None:
    """At the limit an integer passes, one digit more is refused."""
    limits = Limits(integer_digits=20)
    encoded = encode(16**20 - 1, limits=limits)
    assert 16**20 - 1 == decode(encoded.header, limits=limits)
    with pytest.raises(UnsafeValueError, match="20 hexadecimal digits"):
        encode(16**20, limits=limits)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.dates(), st.times(),
        st.timedeltas(), st.uuids(), st.complex_numbers(allow_nan=False), st.datetimes(timezones=st.timezones()),
        st.decimals(allow_nan=False).filter(lambda d: d.is_infinite() or abs(d.as_tuple().exponent) < 10_000),
    )
)  # fmt: skip
def test_any_scalar_comes_back_equal(value: Any) -> None:
    """Any value of these types."""
    assert value == roundtrip(value)
