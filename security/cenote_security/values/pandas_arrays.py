"""Columns of pandas that are more than a numpy array: nullable, categorical, text, zoned dates, Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect, libraries
from cenote_security.values.frequencies import check_frequency, read_frequency
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, Parts
from cenote_security.values.pandas_scalars import CLOSED
from cenote_security.values.shapes import class_name
from cenote_security.values.times import read_zone, zone_meta

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_STORAGES = ("python", "pyarrow")
_NUMERIC = "biuf"
_COLUMN = "biufcmM"
"""Kinds of numpy types that a column or index has as they are. (Objects are checked apart, text has none.)"""


def is_array(value: object) -> bool:
    """An extension array of pandas' own."""
    pd = libraries.loaded("pandas", "DataFrame")
    if pd is None:
        return False
    own = type(value).__module__.partition(".")[0] == "pandas"
    return own and issubclass(type(value), pd.api.extensions.ExtensionArray)


def column_values(holder: Foreign) -> Foreign:
    """What is in a Series or an Index, without a copy: a numpy array, or an extension array."""
    np = libraries.numpy()
    return holder.to_numpy() if isinstance(holder.dtype, np.dtype) else holder.array


def check_column(value: Foreign, kinds: str = _COLUMN + "O", dimensions: int = 1) -> Foreign:
    """The value, if it is a numpy array of such kinds, or an extension array. MalformedValueError otherwise."""
    np = libraries.numpy()
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
    pd, child, dtype = libraries.pandas(), encoder.child, value.dtype
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
    np, pd = libraries.numpy(), libraries.pandas()
    if isinstance(value.dtype, np.dtype) or isinstance(value, pd.arrays.NumpyExtensionArray):
        return ["plain", None, [encoder.child(value.to_numpy())]]
    if isinstance(value, pd.arrays.IntegerArray | pd.arrays.FloatingArray | pd.arrays.BooleanArray):
        return ["nullable", None, [encoder.child(value._data), encoder.child(value._mask)]]
    raise UnsafeValueError(class_name(type(value)), "convert it to a dense column first")


def _write_text(encoder: Encoder, value: Foreign) -> Node:
    pd = libraries.pandas()
    dtype = value.dtype
    missing = "NA" if getattr(dtype, "na_value", pd.NA) is pd.NA else "nan"
    if dtype.storage != "python":
        return ["strings", ["pyarrow", missing], [encoder.child(value.__arrow_array__())]]
    texts = [None if absent else text for text, absent in zip(value, value.isna(), strict=True)]
    return ["strings", ["python", missing], [encoder.child(texts)]]


def _build_plain(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    (values,) = expect.children(parts, 1)
    check_column(values, _COLUMN + "OSUV")
    return pd.array(values) if values.dtype.kind in "mM" else pd.arrays.NumpyExtensionArray(values)


def _build_dates(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    (instants,) = expect.children(parts, 1)
    check_column(instants, "M")
    zone = read_zone(parts.meta)
    return pd.DatetimeIndex(instants, copy=False).tz_localize("UTC").tz_convert(zone).array


def _build_categorical(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    codes, categories = expect.children(parts, 2)
    if not isinstance(categories, pd.Index):
        expect.malformed("categories are an index")
    check_codes(codes, len(categories))
    # Not checked to be distinct: pandas would do it with a hash table, whose cost hostile numbers decide.
    dtype = pd.CategoricalDtype._from_fastpath(categories, expect.flag(parts.meta))
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _build_periods(parts: Parts) -> Foreign:
    np = libraries.numpy()
    pd = libraries.pandas()
    (ordinals,) = expect.children(parts, 1)
    if check_column(ordinals, "i").dtype != np.int64:
        expect.malformed("periods are 64-bit integers")
    return pd.arrays.PeriodArray(ordinals, dtype=pd.PeriodDtype(read_frequency(parts.meta)))


def _build_intervals(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    left, right = expect.children(parts, 2)
    if not (isinstance(left, pd.Index) and isinstance(right, pd.Index)) or left.dtype == object:
        expect.malformed("the ends of intervals are indexes of numbers or dates")
    return pd.arrays.IntervalArray.from_arrays(left, right, expect.choice(parts.meta, CLOSED))


def _build_strings(parts: Parts) -> Foreign:
    storage, missing = expect.items(parts.meta, 2)
    dtype = _text_dtype(expect.choice(storage, _STORAGES), missing)
    (texts,) = expect.children(parts, 1)
    return _from_arrow(dtype, texts) if storage == "pyarrow" else _from_list(dtype, texts)


def _text_dtype(storage: str, missing: Json) -> Foreign:
    np = libraries.numpy()
    pd = libraries.pandas()
    if expect.choice(missing, ("NA", "nan")) == "NA":
        return pd.StringDtype(storage)
    return pd.StringDtype(storage, na_value=np.nan)


def _from_arrow(dtype: Foreign, texts: Foreign) -> Foreign:
    pa = libraries.pyarrow()
    if not isinstance(texts, pa.ChunkedArray | pa.Array) or texts.type not in (
        pa.string(),
        pa.large_string(),
    ):
        expect.malformed("expected text")
    return dtype.__from_arrow__(texts)


def _from_list(dtype: Foreign, texts: Foreign) -> Foreign:
    pd = libraries.pandas()
    if type(texts) is not list or not set(map(type, texts)) <= {str, type(None)}:
        expect.malformed("expected a list of text")
    return pd.array(texts, dtype=dtype)


def _build_arrowed(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    pa = libraries.pyarrow()
    (values,) = expect.children(parts, 1)
    if not isinstance(values, pa.ChunkedArray | pa.Array):
        expect.malformed("expected an Arrow array")
    return pd.arrays.ArrowExtensionArray(values)


def _build_nullable(parts: Parts) -> Foreign:
    np = libraries.numpy()
    pd = libraries.pandas()
    data, mask = expect.children(parts, 2)
    check_column(data, _NUMERIC)
    if check_column(mask, "b").shape != data.shape or not data.dtype.isnative or data.dtype == np.float16:
        expect.malformed("a mask does not fit its column")
    makers = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return makers.get(data.dtype.kind, pd.arrays.IntegerArray)(data, mask)


KINDS: dict[str, Kind] = {
    "plain": Immutable(build=_build_plain, whole=True),
    "dates": Immutable(build=_build_dates, whole=True),
    "categorical": Immutable(build=_build_categorical, whole=True),
    "periods": Immutable(build=_build_periods, whole=True),
    "intervals": Immutable(build=_build_intervals, whole=True),
    "strings": Immutable(build=_build_strings, whole=True),
    "arrowed": Immutable(build=_build_arrowed, whole=True),
    "nullable": Immutable(build=_build_nullable, whole=True),
}
