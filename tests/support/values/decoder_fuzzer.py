"""Feeds the decoder with broken encodings: `python decoder_fuzzer.py SEED COUNT`.

It is a separate process with hard limits on memory and time, so that a crash, a hang or a flood is visible from
outside. Prints one JSON object: how many cases gave a value, how many were refused, and the slowest.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from cenote_security.errors import CenoteError
from cenote_security.values import decode, encode
from cenote_security.values.decoder import class_table

MEMORY_LIMIT = 1536 * 2**20  # address space in addition to that of the libraries


class Light(Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Plain:
    pass


def samples() -> list[Any]:
    """Values that together use every kind of node."""
    plain = Plain()
    plain.me, plain.others = plain, {plain}  # type: ignore[attr-defined]
    shared = [1, "a"]
    frame = pd.DataFrame({"i": [1, 2], "t": ["x", None], "o": pd.Series([[1], (2,)], dtype=object)})
    frame["c"] = pd.Categorical(["a", "b"])
    frame["d"] = pd.date_range("2020", periods=2, tz="Europe/Berlin")
    frame["n"] = pd.array([1, None], dtype="Int64")
    frame["p"] = pd.period_range("2020", periods=2, freq="M")
    frame["v"] = pd.interval_range(0, 2)
    frame["w"] = pd.array(["a", None], dtype=pd.StringDtype("python"))
    frame["r"] = pd.Series([1, 2], dtype="int64[pyarrow]")
    table = pa.table({
        "l": [[1], None], "s": [{"a": "x"}, None], "d": pa.array(["a", "b"]).dictionary_encode(),
        "f": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "n": pa.nulls(2),
        "t": pa.array([1, 2], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    polars_frame = pl.DataFrame({
        "d": [date(2020, 1, 1), None], "l": [["a"], None], "s": [{"a": 1}, None], "t": [datetime(2020, 1, 1), None],
        "c": pl.Series(["a", "b"], dtype=pl.Categorical), "e": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    })  # fmt: skip
    record = np.zeros(2, [("a", "i4"), ("b", "f8", (2,)), ("c", "U3"), ("d", "?")])
    return [
        [shared, shared, (shared,), {"k": shared, (1, "t"): {2}}, frozenset({1, (2,)}), deque([1], 3)],
        [OrderedDict(a=1), Counter("aab"), defaultdict(list, a=[1]), SimpleNamespace(a=1)],
        ["long" * 100, b"bytes", bytearray(b"x"), 2**200, 1 + 2j, Decimal("1.5"), Path("a"), range(3), slice(1)],
        [datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), timedelta(1), UTC, list(range(50)), [0.5] * 50],
        [Light.RED, Point(Point(1, 2), 3), {Point(1, 2): 3}, Pair(1, [2]), plain, ValueError("x")],
        [np.arange(6).reshape(2, 3), np.array(["a", "bc"]), np.array([True, False]), record, np.float64(1.5)],
        [np.array([1, "a", None], dtype=object), np.ma.array([1, 2], mask=[0, 1]), np.array(["2020"], "M8[D]")],
        [frame, frame["i"], frame.set_index(["i", "t"]).index, pd.date_range("2020", periods=3, freq="D")],
        [pd.DataFrame(np.ones((3, 2)), columns=["a", "b"]), pd.Timestamp("2020", tz="UTC"), pd.Timedelta(1), pd.NA],
        [polars_frame, polars_frame["l"], Fraction(1, 3), ...],
        [pd.Period("2020", "M"), pd.Interval(1, 2), pd.NaT, table, table.schema, table.to_batches()[0]],
    ]  # fmt: skip


SCALARS = [
    None, True, False, 0, 1, -1, 2, 7, 8, 64, 2**31, 2**62, -(2**63), 0.5, float("nan"), float("inf"), "", "a",
    "<f8", "|O8", "|b1", "<M8[ns]", "D", "ns", "UTC", "q", "C", "F", "list", "tuple", "x" * 300, [], {}, [0],
    [1], [3], [0, 0], [0, 8], {"q": [0, 8]},
]  # fmt: skip


def broken_json(header: bytes, chance: random.Random) -> bytes:
    """The header with a few parts replaced, swapped, repeated or removed."""
    parsed = json.loads(header)
    for _ in range(chance.randint(1, 3)):
        spots = list(_lists(parsed))
        spot = chance.choice(spots)
        if not spot:
            continue
        place = chance.randrange(len(spot))
        match chance.randrange(6):
            case 0 | 1:
                spot[place] = _copy(chance.choice(SCALARS))
            case 2:
                other = chance.choice([s for s in spots if s])
                spot[place] = _copy(chance.choice(other))
            case 3:
                spot.insert(place, _copy(chance.choice(SCALARS)))
            case 4:
                del spot[place]
            case 5 if isinstance(spot[place], int):
                spot[place] += chance.choice([-1, 1, 8, 2**20])
    return json.dumps(parsed).encode()


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _lists(value: Any) -> Any:
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, list):
            yield current
            waiting.extend(current)


def broken_bytes(content: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, cut or repeated."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        if not changed:
            break
        place = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0 | 1:
                changed[place] = chance.randrange(256)
            case 2:
                del changed[place : place + chance.randint(1, 8)]
            case 3:
                changed[place:place] = changed[place : place + chance.randint(1, 40)]
    return bytes(changed)


def use(value: Any) -> None:
    """The first operations of a reader. Python errors are the value's own; a crash would be ours."""
    try:
        str(value), repr(value)[:100], hash(value) if isinstance(value, tuple) else None
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, pd.DataFrame | pd.Series):
                item.describe(), item.isna().sum(), item.head(1).to_dict()
            elif isinstance(item, pa.Table | pa.RecordBatch):
                item.to_pylist(), item.to_pandas()
            elif isinstance(item, pl.DataFrame):
                str(item), item.to_dicts(), item.describe()
            elif isinstance(item, np.ndarray):
                item.tolist(), item.copy()
    except Exception:
        return


def run(seed: int, count: int) -> dict[str, Any]:
    chance = random.Random(seed)
    encodings = [encode(value) for value in samples()]
    classes = class_table([Light, Point, Pair, Plain])
    for encoded in encodings:
        decode(encoded.header, encoded.region(), classes=classes)  # each sample is a valid value
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY_LIMIT,) * 2)
    result: dict[str, Any] = {"values": 0, "refused": 0, "slowest": 0.0}
    for _ in range(count):
        encoded = chance.choice(encodings)
        header, region = encoded.header, encoded.region()
        match chance.randrange(8):
            case 0:
                header = broken_bytes(header, chance)
            case 1:
                region = broken_bytes(region, chance)
            case 2:
                header, region = broken_json(header, chance), broken_bytes(region, chance)
            case _:
                header = broken_json(header, chance)
        before = time.process_time()
        try:
            value = decode(header, region, classes=classes)
        except CenoteError:
            result["refused"] += 1
        else:
            result["values"] += 1
            use(value)
        result["slowest"] = max(result["slowest"], time.process_time() - before)
    return result


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
