"""Dates, times and time zones of the standard library."""

from __future__ import annotations

import re
import sys
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.node import Immutable, Json, Kind, Node, Parts, Write
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


def _build_zone(parts: Parts) -> tzinfo:
    zone = read_zone(parts.meta)
    return expect.malformed("expected a time zone") if zone is None else zone


def _write_datetime(encoder: Encoder, value: datetime) -> Node:
    day = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return ["datetime", [*day, value.fold], [encoder.child(value.tzinfo)]]


def _build_datetime(parts: Parts) -> datetime:
    year, month, day, *clock = _fields(parts, 8)
    return datetime.combine(date(year, month, day), _clock(clock, _only_zone(parts)))


def _write_time(encoder: Encoder, value: time) -> Node:
    fields = [value.hour, value.minute, value.second, value.microsecond, value.fold]
    return ["time", fields, [encoder.child(value.tzinfo)]]


def _build_time(parts: Parts) -> time:
    return _clock(_fields(parts, 5), _only_zone(parts))


def _fields(parts: Parts, count: int) -> list[int]:
    return [expect.integer(field, 0, 999_999) for field in expect.items(parts.meta, count)]


def _clock(fields: list[int], zone: tzinfo | None) -> time:
    hour, minute, second, microsecond, fold = fields
    return time(hour, minute, second, microsecond, tzinfo=zone, fold=fold)


def _only_zone(parts: Parts) -> tzinfo | None:
    zone: object = expect.children(parts, 1)[0]
    if zone is None or isinstance(zone, timezone | ZoneInfo):
        return zone
    return expect.malformed("expected a time zone")


def _write_date(_encoder: Encoder, value: date) -> Node:
    return ["date", [value.year, value.month, value.day]]


def _build_date(parts: Parts) -> date:
    year, month, day = (expect.integer(field, 1, 9999) for field in expect.items(parts.meta, 3))
    return date(year, month, day)


def _write_delta(_encoder: Encoder, value: timedelta) -> Node:
    return ["timedelta", [value.days, value.seconds, value.microseconds]]


def _build_delta(parts: Parts) -> timedelta:
    return _read_delta(expect.items(parts.meta, 3))


def _read_delta(meta: list[Json]) -> timedelta:
    days, seconds, microseconds = meta
    return timedelta(
        days=expect.integer(days, -999_999_999, 999_999_999),
        seconds=expect.integer(seconds, 0, _DAY - 1),
        microseconds=expect.integer(microseconds, 0, _MICROSECONDS - 1),
    )


WRITERS: dict[type, Write] = {
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_delta,
    timezone: _write_zone,
    ZoneInfo: _write_zone,
}

KINDS: dict[str, Kind] = {
    "datetime": Immutable(build=_build_datetime),
    "date": Immutable(build=_build_date, runs=0),
    "time": Immutable(build=_build_time),
    "timedelta": Immutable(build=_build_delta, runs=0),
    "zone": Immutable(build=_build_zone, runs=0),
}
