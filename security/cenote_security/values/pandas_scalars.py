"""Single values of pandas: timestamps, durations, periods, intervals, and what stands for a missing value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.values import expect, libraries
from cenote_security.values.frequencies import check_frequency, read_frequency
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, Parts, Write
from cenote_security.values.times import read_zone, zone_meta

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

UNITS = ("s", "ms", "us", "ns")
CLOSED = ("left", "right", "both", "neither")
_SMALLEST = -(2**63) + 1  # one less is NaT


def writers() -> dict[type, Write]:
    pd = libraries.loaded("pandas", "DataFrame")
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


def _build_timestamp(parts: Parts) -> Foreign:
    np = libraries.numpy()
    pd = libraries.pandas()
    count, unit, zone = expect.items(parts.meta, 3)
    instant = pd.Timestamp(np.datetime64(_read_count(count), expect.choice(unit, UNITS)))
    where = read_zone(zone)
    return instant if where is None else instant.tz_localize("UTC").tz_convert(where)


def _write_timedelta(_encoder: Encoder, value: Foreign) -> Node:
    return ["duration", [_count(value), value.unit]]


def _build_timedelta(parts: Parts) -> Foreign:
    np = libraries.numpy()
    pd = libraries.pandas()
    count, unit = expect.items(parts.meta, 2)
    return pd.Timedelta(np.timedelta64(_read_count(count), expect.choice(unit, UNITS)))


def _write_period(_encoder: Encoder, value: Foreign) -> Node:
    return ["period", [value.ordinal, check_frequency(value.freqstr, "pandas.Period")]]


def _build_period(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    ordinal, name = expect.items(parts.meta, 2)
    return pd.Period(ordinal=_read_count(ordinal), freq=read_frequency(name))


def _write_interval(encoder: Encoder, value: Foreign) -> Node:
    return ["interval", value.closed, encoder.run([value.left, value.right])]


def _build_interval(parts: Parts) -> Foreign:
    pd = libraries.pandas()
    left, right = expect.children(parts, 2)
    return pd.Interval(left, right, expect.choice(parts.meta, CLOSED))


def _write_nat(_encoder: Encoder, _value: object) -> Node:
    return ["nat", None]


def _build_nat(_parts: Parts) -> Foreign:
    pd = libraries.pandas()
    return pd.NaT


def _write_na(_encoder: Encoder, _value: object) -> Node:
    return ["na", None]


def _build_na(_parts: Parts) -> Foreign:
    pd = libraries.pandas()
    return pd.NA


KINDS: dict[str, Kind] = {
    "timestamp": Immutable(build=_build_timestamp, runs=0),
    "duration": Immutable(build=_build_timedelta, runs=0),
    "period": Immutable(build=_build_period, runs=0),
    "interval": Immutable(build=_build_interval),
    "nat": Immutable(build=_build_nat, runs=0),
    "na": Immutable(build=_build_na, runs=0),
}
