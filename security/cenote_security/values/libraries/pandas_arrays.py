"""Single values and columns of pandas that are more than a numpy scalar or array.

Values are timestamps, durations, periods, intervals, and what stands for a missing value; columns are nullable,
categorical, text, zoned dates, Arrow. Of names of frequencies, such as `3D`, `h`, `W-SUN`, `QE-DEC`, only those of
a closed grammar reach pandas' own parser.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.libraries import optional
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, NodeParts, Write
from cenote_security.values.scalars import read_zone, zone_meta
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


_TICKS = r"D|h|min|s|ms|us|ns"
_CALENDAR = r"B|W|ME|MS|BME|BMS|SME|SMS|QE|QS|BQE|BQS|YE|YS|BYE|BYS|M|Q|Y"
_FREQUENCY = re.compile(rf"(?:[1-9]\d{{0,5}})?(?:{_TICKS}|(?:{_CALENDAR})(?:-[A-Z]{{3}})?)")


def frequency_name(offset: Foreign) -> str | None:
    """The name of a frequency, or None for one that is not in the grammar (custom calendars, for one)."""
    name = None if offset is None else offset.freqstr
    return name if isinstance(name, str) and _FREQUENCY.fullmatch(name) else None


def check_frequency(name: str, class_name: str) -> str:
    """The name, if it is in the grammar. UnsafeValueError that names the class otherwise."""
    if not _FREQUENCY.fullmatch(name):
        raise UnsafeValueError(class_name, f"of frequency {name:.100}")
    return name


def read_frequency(meta: Json) -> str:
    name = expect.text(meta)
    return name if _FREQUENCY.fullmatch(name) else expect.malformed("expected a frequency")


def is_slow(name: str) -> bool:
    """Whether pandas checks it date by date, in Python, rather than by arithmetic."""
    return not re.fullmatch(rf"\d*(?:{_TICKS})", name)


UNITS = ("s", "ms", "us", "ns")
CLOSED = ("left", "right", "both", "neither")
_SMALLEST = -(2**63) + 1  # one less is NaT


def scalar_writers() -> dict[type, Write]:
    pd = optional.loaded("pandas", "DataFrame")
    if pd is None:
        return {}
    return {
        pd.Timestamp: _write_timestamp,
        pd.Timedelta: _write_timedelta,
        pd.Period: _write_period,
        pd.Interval: _write_interval,
        type(pd.NaT): _write_nat,
        type(pd.NA): _write_na,
    }


def _write_timestamp(_encoder: Encoder, value: Foreign) -> Node:
    return ["timestamp", [_count(value), value.unit, zone_meta(value.tzinfo)]]


def _count(value: Foreign) -> int:
    return int(value.asm8.view("i8"))


def _read_count(meta: Json) -> int:
    return expect.integer(meta, _SMALLEST, 2**63 - 1)


def _build_timestamp(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    pd = optional.pandas()
    count, unit, zone = expect.items(parts.meta, 3)
    instant = pd.Timestamp(np.datetime64(_read_count(count), expect.choice(unit, UNITS)))
    where = read_zone(zone)
    return instant if where is None else instant.tz_localize("UTC").tz_convert(where)


def _write_timedelta(_encoder: Encoder, value: Foreign) -> Node:
    return ["duration", [_count(value), value.unit]]


def _build_timedelta(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    pd = optional.pandas()
    count, unit = expect.items(parts.meta, 2)
    return pd.Timedelta(np.timedelta64(_read_count(count), expect.choice(unit, UNITS)))


def _write_period(_encoder: Encoder, value: Foreign) -> Node:
    return ["period", [value.ordinal, check_frequency(value.freqstr, "pandas.Period")]]


def _build_period(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    ordinal, name = expect.items(parts.meta, 2)
    return pd.Period(ordinal=_read_count(ordinal), freq=read_frequency(name))


def _write_interval(encoder: Encoder, value: Foreign) -> Node:
    return ["interval", value.closed, encoder.run([value.left, value.right])]


def _build_interval(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    left, right = expect.children(parts, 2)
    return pd.Interval(left, right, expect.choice(parts.meta, CLOSED))


def _write_nat(_encoder: Encoder, _value: object) -> Node:
    return ["nat", None]


def _build_nat(_parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    return pd.NaT


def _write_na(_encoder: Encoder, _value: object) -> Node:
    return ["na", None]


def _build_na(_parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    return pd.NA


SCALAR_KINDS: dict[str, Kind] = {
    "timestamp": Immutable(build=_build_timestamp, runs=0),
    "duration": Immutable(build=_build_timedelta, runs=0),
    "period": Immutable(build=_build_period, runs=0),
    "interval": Immutable(build=_build_interval),
    "nat": Immutable(build=_build_nat, runs=0),
    "na": Immutable(build=_build_na, runs=0),
}


_STORAGES = ("python", "pyarrow")
_NUMERIC = "biuf"
_COLUMN = "biufcmM"
"""Kinds of numpy types that a column or index has as they are. (Objects are checked apart, text has none.)"""


def is_array(value: object) -> bool:
    """An extension array of pandas' own."""
    pd = optional.loaded("pandas", "DataFrame")
    if pd is None:
        return False
    own = type(value).__module__.partition(".")[0] == "pandas"
    return own and issubclass(type(value), pd.api.extensions.ExtensionArray)


def column_values(holder: Foreign) -> Foreign:
    """What is in a Series or an Index, without a copy: a numpy array, or an extension array."""
    np = optional.numpy()
    return holder.to_numpy() if isinstance(holder.dtype, np.dtype) else holder.array


def check_column(value: Foreign, kinds: str = _COLUMN + "O", dimensions: int = 1) -> Foreign:
    """The value, if it is a numpy array of such kinds, or an extension array. MalformedValueError otherwise."""
    np = optional.numpy()
    if is_array(value) and "O" in kinds:
        return value
    if type(value) is not np.ndarray or value.dtype.kind not in kinds or value.ndim != dimensions:
        expect.malformed("expected a column")
    return value


def check_codes(codes: Foreign, count: int) -> Foreign:
    """Codes that name one of `count` things, or -1. pandas looks things up by them without a check."""
    check_column(codes, "i")
    if codes.min(initial=0) < -1 or codes.max(initial=-1) >= count:
        expect.malformed("a code names nothing")
    return codes


def write_array(encoder: Encoder, value: Foreign) -> Node:
    pd, child, dtype = optional.pandas(), encoder.child, value.dtype
    match dtype:
        case pd.DatetimeTZDtype():
            return ["dates", zone_meta(dtype.tz), [child(value.tz_convert(None).to_numpy())]]
        case pd.CategoricalDtype():
            return ["categorical", dtype.ordered, [child(value.codes), child(dtype.categories)]]
        case pd.PeriodDtype():
            return ["periods", _period_frequency(dtype), [child(value.asi8)]]
        case pd.IntervalDtype():
            return ["intervals", value.closed, [child(value.left), child(value.right)]]
        case pd.StringDtype():
            return _write_text(encoder, value)
        case pd.ArrowDtype():
            return ["arrowed", None, [child(value.__arrow_array__())]]
    return _write_numeric(encoder, value)


def _period_frequency(dtype: Foreign) -> str:
    return check_frequency(str(dtype).removeprefix("period[").removesuffix("]"), "pandas.PeriodArray")


def _write_numeric(encoder: Encoder, value: Foreign) -> Node:
    np, pd = optional.numpy(), optional.pandas()
    if isinstance(value.dtype, np.dtype) or isinstance(value, pd.arrays.NumpyExtensionArray):
        return ["plain", None, [encoder.child(value.to_numpy())]]
    if isinstance(value, pd.arrays.IntegerArray | pd.arrays.FloatingArray | pd.arrays.BooleanArray):
        return ["nullable", None, [encoder.child(value._data), encoder.child(value._mask)]]
    raise UnsafeValueError(class_name(type(value)), "convert it to a dense column first")


def _write_text(encoder: Encoder, value: Foreign) -> Node:
    pd = optional.pandas()
    dtype = value.dtype
    missing = "NA" if getattr(dtype, "na_value", pd.NA) is pd.NA else "nan"
    if dtype.storage != "python":
        return ["strings", ["pyarrow", missing], [encoder.child(value.__arrow_array__())]]
    texts = [None if absent else text for text, absent in zip(value, value.isna(), strict=True)]
    return ["strings", ["python", missing], [encoder.child(texts)]]


def _build_plain(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    (values,) = expect.children(parts, 1)
    check_column(values, _COLUMN + "OSUV")
    return pd.array(values) if values.dtype.kind in "mM" else pd.arrays.NumpyExtensionArray(values)


def _build_dates(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    (instants,) = expect.children(parts, 1)
    check_column(instants, "M")
    zone = read_zone(parts.meta)
    return pd.DatetimeIndex(instants, copy=False).tz_localize("UTC").tz_convert(zone).array


def _build_categorical(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    codes, categories = expect.children(parts, 2)
    if not isinstance(categories, pd.Index):
        expect.malformed("categories are an index")
    check_codes(codes, len(categories))
    # Not checked to be distinct: pandas would do it with a hash table, whose cost hostile numbers decide.
    dtype = pd.CategoricalDtype._from_fastpath(categories, expect.flag(parts.meta))
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _build_periods(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    pd = optional.pandas()
    (ordinals,) = expect.children(parts, 1)
    if check_column(ordinals, "i").dtype != np.int64:
        expect.malformed("periods are 64-bit integers")
    return pd.arrays.PeriodArray(ordinals, dtype=pd.PeriodDtype(read_frequency(parts.meta)))


def _build_intervals(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    left, right = expect.children(parts, 2)
    if not (isinstance(left, pd.Index) and isinstance(right, pd.Index)) or left.dtype == object:
        expect.malformed("the ends of intervals are indexes of numbers or dates")
    return pd.arrays.IntervalArray.from_arrays(left, right, expect.choice(parts.meta, CLOSED))


def _build_strings(parts: NodeParts) -> Foreign:
    storage, missing = expect.items(parts.meta, 2)
    dtype = _text_dtype(expect.choice(storage, _STORAGES), missing)
    (texts,) = expect.children(parts, 1)
    return _from_arrow(dtype, texts) if storage == "pyarrow" else _from_list(dtype, texts)


def _text_dtype(storage: str, missing: Json) -> Foreign:
    np = optional.numpy()
    pd = optional.pandas()
    if expect.choice(missing, ("NA", "nan")) == "NA":
        return pd.StringDtype(storage)
    return pd.StringDtype(storage, na_value=np.nan)


def _from_arrow(dtype: Foreign, texts: Foreign) -> Foreign:
    pa = optional.pyarrow()
    if not isinstance(texts, pa.ChunkedArray | pa.Array) or texts.type not in (
        pa.string(),
        pa.large_string(),
    ):
        expect.malformed("expected text")
    return dtype.__from_arrow__(texts)


def _from_list(dtype: Foreign, texts: Foreign) -> Foreign:
    pd = optional.pandas()
    if type(texts) is not list or not set(map(type, texts)) <= {str, type(None)}:
        expect.malformed("expected a list of text")
    return pd.array(texts, dtype=dtype)


def _build_arrowed(parts: NodeParts) -> Foreign:
    pd = optional.pandas()
    pa = optional.pyarrow()
    (values,) = expect.children(parts, 1)
    if not isinstance(values, pa.ChunkedArray | pa.Array):
        expect.malformed("expected an Arrow array")
    return pd.arrays.ArrowExtensionArray(values)


def _build_nullable(parts: NodeParts) -> Foreign:
    np = optional.numpy()
    pd = optional.pandas()
    data, mask = expect.children(parts, 2)
    check_column(data, _NUMERIC)
    if check_column(mask, "b").shape != data.shape or not data.dtype.isnative or data.dtype == np.float16:
        expect.malformed("a mask does not fit its column")
    makers = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return makers.get(data.dtype.kind, pd.arrays.IntegerArray)(data, mask)


ARRAY_KINDS: dict[str, Kind] = {
    "plain": Immutable(build=_build_plain, whole=True),
    "dates": Immutable(build=_build_dates, whole=True),
    "categorical": Immutable(build=_build_categorical, whole=True),
    "periods": Immutable(build=_build_periods, whole=True),
    "intervals": Immutable(build=_build_intervals, whole=True),
    "strings": Immutable(build=_build_strings, whole=True),
    "arrowed": Immutable(build=_build_arrowed, whole=True),
    "nullable": Immutable(build=_build_nullable, whole=True),
}
