"""Single values of the standard library: text, bytes, numbers, paths, ranges, dates, times, time zones."""

from __future__ import annotations

import re
import sys
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from uuid import UUID
from zoneinfo import ZoneInfo

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Mutable, Node, NodeParts, Write
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


ZONE = re.compile(r"[A-Za-z0-9_+\-]{1,32}(?:/[A-Za-z0-9_+\-]{1,32}){0,3}")
"""Names of the time zone database. No dot: a name becomes a path below the database."""

OFFSET = re.compile(r"[+-]\d\d:\d\d")
"""How Arrow writes a zone without a name."""

_DAY = 86_400
_MICROSECONDS = 1_000_000


def zone_meta(zone: tzinfo | None) -> Json:
    """A time zone as meta: null, the name of a zone, or [days, seconds, microseconds, name] of an offset.

    Raises UnsafeValueError for a zone that has no name in the database.
    """
    if zone is None:
        return None
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        label = zone.tzname(None)
        own_label = label if timezone(offset).tzname(None) != label else None
        return [offset.days, offset.seconds, offset.microseconds, own_label]
    name = _database_name(zone)
    if name is None or not ZONE.fullmatch(name):
        raise UnsafeValueError(class_name(type(zone)), "a time zone without a name in the database")
    return name


def read_zone(meta: Json) -> tzinfo | None:
    """The time zone that `zone_meta` described."""
    if meta is None:
        return None
    if type(meta) is str:
        return _read_named_zone(meta)
    *offset, name = expect.items(meta, 4)
    delta = _read_delta(offset)
    return timezone(delta) if name is None else timezone(delta, expect.text(name))


def _read_named_zone(name: str) -> tzinfo:
    if not ZONE.fullmatch(name):
        expect.malformed("expected the name of a time zone")
    return ZoneInfo(name)


def _database_name(zone: tzinfo) -> str | None:
    name: object = None
    if type(zone) is ZoneInfo:
        name = zone.key
    elif type(zone).__module__.partition(".")[0] == "pytz" and "pytz" in sys.modules:
        name = getattr(zone, "zone", None)
    return name if isinstance(name, str) else None


def _write_zone(_encoder: Encoder, value: tzinfo) -> Node:
    return ["zone", zone_meta(value)]


def _build_zone(parts: NodeParts) -> tzinfo:
    zone = read_zone(parts.meta)
    return expect.malformed("expected a time zone") if zone is None else zone


def _write_datetime(encoder: Encoder, value: datetime) -> Node:
    day = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return ["datetime", [*day, value.fold], [encoder.child(value.tzinfo)]]


def _build_datetime(parts: NodeParts) -> datetime:
    year, month, day, *clock = _fields(parts, 8)
    return datetime.combine(date(year, month, day), _clock(clock, _only_zone(parts)))


def _write_time(encoder: Encoder, value: time) -> Node:
    fields = [value.hour, value.minute, value.second, value.microsecond, value.fold]
    return ["time", fields, [encoder.child(value.tzinfo)]]


def _build_time(parts: NodeParts) -> time:
    return _clock(_fields(parts, 5), _only_zone(parts))


def _fields(parts: NodeParts, count: int) -> list[int]:
    return [expect.integer(field, 0, 999_999) for field in expect.items(parts.meta, count)]


def _clock(fields: list[int], zone: tzinfo | None) -> time:
    hour, minute, second, microsecond, fold = fields
    return time(hour, minute, second, microsecond, tzinfo=zone, fold=fold)


def _only_zone(parts: NodeParts) -> tzinfo | None:
    zone: object = expect.children(parts, 1)[0]
    if zone is None or isinstance(zone, timezone | ZoneInfo):
        return zone
    return expect.malformed("expected a time zone")


def _write_date(_encoder: Encoder, value: date) -> Node:
    return ["date", [value.year, value.month, value.day]]


def _build_date(parts: NodeParts) -> date:
    year, month, day = (expect.integer(field, 1, 9999) for field in expect.items(parts.meta, 3))
    return date(year, month, day)


def _write_delta(_encoder: Encoder, value: timedelta) -> Node:
    return ["timedelta", [value.days, value.seconds, value.microseconds]]


def _build_delta(parts: NodeParts) -> timedelta:
    return _read_delta(expect.items(parts.meta, 3))


def _read_delta(meta: list[Json]) -> timedelta:
    days, seconds, microseconds = meta
    return timedelta(
        days=expect.integer(days, -999_999_999, 999_999_999),
        seconds=expect.integer(seconds, 0, _DAY - 1),
        microseconds=expect.integer(microseconds, 0, _MICROSECONDS - 1),
    )


TIME_WRITERS: dict[type, Write] = {
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_delta,
    timezone: _write_zone,
    ZoneInfo: _write_zone,
}

TIME_KINDS: dict[str, Kind] = {
    "datetime": Immutable(build=_build_datetime),
    "date": Immutable(build=_build_date, runs=0),
    "time": Immutable(build=_build_time),
    "timedelta": Immutable(build=_build_delta, runs=0),
    "zone": Immutable(build=_build_zone, runs=0),
}


_HEXADECIMAL = re.compile(r"-?[0-9a-f]+")
_DECIMAL = re.compile(r"-?(?:\d+(?:\.\d*)?(?:E[+-]?\d{1,7})?|Infinity|s?NaN\d*)", re.ASCII)
_LONGEST_DECIMAL = 10_000
_LARGEST_EXPONENT = 100_000  # `int(Decimal("1E+999999999"))` would write a billion digits
_LONGEST_FRACTION = (
    3_500  # hexadecimal digits of a part: reducing takes quadratic time, and Python prints no more
)
_LONGEST_PATH = 65_536
_PATHS: dict[str, type[PurePath]] = {"posix": PurePosixPath, "windows": PureWindowsPath, "path": Path}


def _write_text(encoder: Encoder, value: str) -> Node:
    return ["text", encoder.buffer(value.encode("utf-8", "surrogatepass"), value, align=False)]


def _build_text(parts: NodeParts) -> str:
    return str(parts.source.region.take(parts.meta), "utf-8", "surrogatepass")


def _write_bytes(encoder: Encoder, value: bytes) -> Node:
    return ["bytes", encoder.buffer(value, value, align=False)]


def _build_bytes(parts: NodeParts) -> bytes:
    return bytes(parts.source.region.take(parts.meta))


def _write_bytearray(encoder: Encoder, value: bytearray) -> Node:
    return ["bytearray", encoder.buffer(value, value, align=False)]


def _bytearray_shell(parts: NodeParts) -> bytearray:
    return bytearray(parts.source.region.take(parts.meta))


def _fill_nothing(shell: Foreign, _parts: NodeParts) -> None:
    """The shell is complete: nothing in it can refer to anything."""


def _write_integer(encoder: Encoder, value: int) -> Node:
    if value.bit_length() > 4 * encoder.limits.integer_digits:
        raise UnsafeValueError("int", f"more than {encoder.limits.integer_digits} hexadecimal digits")
    return ["int", f"{value:x}"]


def _build_integer(parts: NodeParts) -> int:
    digits = expect.text(parts.meta, parts.source.limits.integer_digits + 1)
    if not _HEXADECIMAL.fullmatch(digits):
        expect.malformed("expected hexadecimal digits")
    return int(digits, 16)  # linear: the base is a power of two


def _write_complex(_encoder: Encoder, value: complex) -> Node:
    return ["complex", [value.real, value.imag]]


def _build_complex(parts: NodeParts) -> complex:
    real, imaginary = expect.items(parts.meta, 2)
    return complex(expect.number(real), expect.number(imaginary))


def _write_decimal(_encoder: Encoder, value: Decimal) -> Node:
    text = str(value)
    exponent = value.as_tuple().exponent
    if len(text) > _LONGEST_DECIMAL or (isinstance(exponent, int) and abs(exponent) > _LARGEST_EXPONENT):
        raise UnsafeValueError("decimal.Decimal", "too many digits")
    return ["decimal", text]


def _build_decimal(parts: NodeParts) -> Decimal:
    text = expect.text(parts.meta, _LONGEST_DECIMAL)
    if not _DECIMAL.fullmatch(text):
        expect.malformed("expected a decimal number")
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > _LARGEST_EXPONENT:
        expect.malformed("a decimal exponent is too large")
    return value


def _write_fraction(_encoder: Encoder, value: Fraction) -> Node:
    parts = [f"{value.numerator:x}", f"{value.denominator:x}"]
    if max(map(len, parts)) > _LONGEST_FRACTION:
        raise UnsafeValueError("fractions.Fraction", f"more than {_LONGEST_FRACTION} hexadecimal digits")
    return ["fraction", parts]


def _build_fraction(parts: NodeParts) -> Fraction:
    texts = [expect.text(part, _LONGEST_FRACTION) for part in expect.items(parts.meta, 2)]
    if not all(map(_HEXADECIMAL.fullmatch, texts)):
        expect.malformed("expected hexadecimal digits")
    return Fraction(*(int(text, 16) for text in texts))


def _write_uuid(_encoder: Encoder, value: UUID) -> Node:
    return ["uuid", value.hex]


def _build_uuid(parts: NodeParts) -> UUID:
    digits = expect.text(parts.meta, 32)
    if len(digits) != 32 or not _HEXADECIMAL.fullmatch(digits):
        expect.malformed("expected the digits of a UUID")
    return UUID(int=int(digits, 16))


def _write_path(_encoder: Encoder, value: PurePath) -> Node:
    kind = next(name for name, cls in _PATHS.items() if type(value) is cls or name == "path")
    text = str(value)
    if len(text) > _LONGEST_PATH:
        raise UnsafeValueError(class_name(type(value)), "too long")
    return ["path", [kind, text]]


def _build_path(parts: NodeParts) -> PurePath:
    kind, text = expect.items(parts.meta, 2)
    return _PATHS[expect.choice(kind, tuple(_PATHS))](expect.text(text, _LONGEST_PATH))


def _write_range(encoder: Encoder, value: range) -> Node:
    return ["range", None, encoder.run([value.start, value.stop, value.step])]


def _build_range(parts: NodeParts) -> range:
    start, stop, step = (_exact_int(bound) for bound in expect.children(parts, 3))
    return range(start, stop, step)


def _exact_int(value: object) -> int:
    return value if type(value) is int else expect.malformed("expected an integer")


def _write_slice(encoder: Encoder, value: slice) -> Node:
    parts = [value.start, value.stop, value.step]
    if not all(part is None or type(part) in (int, float, str) for part in parts):
        raise UnsafeValueError("slice", "its bounds are neither numbers nor text")
    return ["slice", None, encoder.run(parts)]


def _build_slice(parts: NodeParts) -> slice:
    start, stop, step = bounds = expect.children(parts, 3)
    # Slices in slices are freed by recursion in C without a check: enough of them end the process.
    if not all(bound is None or type(bound) in (int, float, str) for bound in bounds):
        expect.malformed("the bounds of a slice are numbers or text")
    return slice(start, stop, step)


def _write_ellipsis(_encoder: Encoder, _value: object) -> Node:
    return ["ellipsis", None]


def _build_ellipsis(_parts: NodeParts) -> object:
    return ...


WRITERS: dict[type, Write] = {
    str: _write_text,
    bytes: _write_bytes,
    bytearray: _write_bytearray,
    int: _write_integer,
    complex: _write_complex,
    Decimal: _write_decimal,
    Fraction: _write_fraction,
    UUID: _write_uuid,
    PurePosixPath: _write_path,
    PureWindowsPath: _write_path,
    type(Path()): _write_path,
    range: _write_range,
    slice: _write_slice,
    type(...): _write_ellipsis,
}

KINDS: dict[str, Kind] = {
    "text": Immutable(build=_build_text, runs=0),
    "bytes": Immutable(build=_build_bytes, runs=0),
    "bytearray": Mutable(shell=_bytearray_shell, fill=_fill_nothing, runs=0),
    "int": Immutable(build=_build_integer, runs=0),
    "complex": Immutable(build=_build_complex, runs=0),
    "decimal": Immutable(build=_build_decimal, runs=0),
    "fraction": Immutable(build=_build_fraction, runs=0),
    "uuid": Immutable(build=_build_uuid, runs=0),
    "path": Immutable(build=_build_path, runs=0),
    "range": Immutable(build=_build_range),
    "slice": Immutable(build=_build_slice),
    "ellipsis": Immutable(build=_build_ellipsis, runs=0),
}
