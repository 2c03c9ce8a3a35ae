"""Values as JSON: what is written, and the error with the remedy for the rest."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from cenote_security.values.plain_json import NotPlainError, as_json

Point = namedtuple("Point", "x y")


class Named(NamedTuple):
    """With types."""

    number: int
    text: str


class Colour(StrEnum):
    """Texts."""

    RED = "red"


class Level(IntEnum):
    """Numbers."""

    HIGH = 2


class Mixed(Enum):
    """Anything."""

    ONE = (1, 1)


class Odd(Enum):
    """Of what JSON does not have."""

    IT = object()


@dataclass
class Size:
    """With a default."""

    width: float
    tags: list[Colour] = field(default_factory=list)


class Order(BaseModel):
    """A model."""

    id: int
    size: Size


@pytest.mark.parametrize("value", [None, True, 3, 1.5, "é\u2028", [1, [2]], {"a": {"b": []}}])
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    """Through JSON."""
    assert value == json.loads(as_json(value, "the result"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(3), "3"),
        (np.float64(1.5), "1.5"),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "true"),
        ((1, ("a",)), '[1,["a"]]'),
        (Counter("aab"), '{"a":2,"b":1}'),
        (OrderedDict(b=1, a=(np.uint8(2),)), '{"b":1,"a":[2]}'),
        (defaultdict(list, a=[1]), '{"a":[1]}'),
        (Counter([1, 1]), '{"1":2}'),
        ({np.int64(1): 1, False: 2, None: 3}, '{"1":1,"false":2,"null":3}'),
        ({date(2020, 1, 2): 1}, '{"2020-01-02":1}'),
        (deque([1]), "[1]"),
        (date(2020, 1, 2), '"2020-01-02"'),
        ([datetime(2020, 1, 2, 3, tzinfo=UTC), time(4, 5)], '["2020-01-02T03:00:00+00:00","04:05:00"]'),
        (pd.Timestamp("2020-01-02 03:04"), '"2020-01-02T03:04:00"'),
        (np.datetime64("2020-01-02"), '"2020-01-02"'),
        (np.datetime64("2020-01-02", "ns"), '"2020-01-02T00:00:00.000000000"'),
        (np.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
        (np.array(["2020-01-02"], dtype="M8[ns]"), '["2020-01-02T00:00:00.000000000"]'),
        (Point(1, (2,)), "[1,[2]]"),
        (Named(1, "a"), '[1,"a"]'),
        (Size(3, [Colour.RED]), '{"width":3,"tags":["red"]}'),
        ({Colour.RED: Level.HIGH, Level.HIGH: Mixed.ONE}, '{"red":2,"2":[1,1]}'),
        (Order(id=1, size=Size(1)), '{"id":1,"size":{"width":1,"tags":[]}}'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ("half of \ud83d", '"half of \\ud83d"'),
    ],
    ids=str,
)
def test_what_json_writes_in_one_way_only(value: object, text: str) -> None:
    """Results of pandas and numpy for a sum or a mean, and values with no other form."""
    assert text == as_json(value, "the result")


class Number(int):
    """Looks like one."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([{"a": {1}}], r"the result\[0\]\['a'\] is a set.*; use sorted"),
        ({(1, 2): 2}, "a key of the result is a tuple; use texts as keys"),
        ({1: 1, "1": 2}, "two keys of the result are '1' as texts"),
        (Size(math.nan), r"the result\['width'\] is nan.*; use None"),
        (Point(1, math.inf), r"the result\[1\] is inf.*; use None"),
        (Odd.IT, "the result is a object"),
        ({Mixed.ONE: 1}, "a key of the result is a"),
        (b"x", "the result is a bytes.*; use .decode"),
        (1j, r"the result is a complex.*; use \[z.real, z.imag\]"),
        ([math.nan], r"the result\[0\] is nan.*; use None"),
        (np.float64("inf"), "the result is inf"),
        (np.array([1.0, math.nan]), r"the result\[1\] is nan"),
        (np.timedelta64(3, "ns"), "the result is a timedelta64.*; use .item"),
        (np.datetime64("NaT"), "the result is a datetime64.*; use None"),
        (pd.NaT, "the result is a NaTType.*; use None"),
        (pd.DataFrame({"a": [1]}), "the result is a DataFrame.*; use .to_dict"),
        (timedelta(1), "the result is a timedelta.*; use .total_seconds"),
        (Number(1), "the result is a Number"),
        ([10**6000], r"the result\[0\] is a number of 19932 bits"),
    ],
)
def test_what_is_no_plain_data(value: object, said: str) -> None:
    """The place and the reason: nothing is changed on the way."""
    with pytest.raises(NotPlainError, match=said):
        as_json(value, "the result")


def test_nested_too_deeply() -> None:
    """Before the reader's stack overflows."""
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(NotPlainError, match="levels deep"):
        as_json(deep, "the result")
