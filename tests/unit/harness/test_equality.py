"""The comparison of two final states of a history: by meaning, not by bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cenote.harness.applying.auditor import differences, same, same_text


@dataclass
class Point:
    x: float


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value


def objects() -> np.ndarray:
    """An array that contains itself as an element."""
    found = np.empty(2, dtype=object)
    found[0], found[1] = found, [1]
    return found


LOOP: list[object] = []
LOOP.append(LOOP)
OTHER: list[object] = []
OTHER.append(OTHER)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), float("nan")),
        ({"a": [1, {2, 3}]}, {"a": [1, {3, 2}]}),
        (Point(1.0), Point(1.0)),
        (Plain([1]), Plain([1])),
        (LOOP, OTHER),
        (objects(), objects()),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan])),
        (pd.DataFrame({"a": [1, None]}), pd.DataFrame({"a": [1, None]})),
        (pl.DataFrame({"a": [1.0, float("nan")]}), pl.DataFrame({"a": [1.0, float("nan")]})),
        (len, len),
        (
            {10**5000, "\ud800", None, (1, "a"), frozenset({2.5})},
            {frozenset({2.5}), (1, "a"), None, "\ud800", 10**5000},
        ),
    ],
)
def test_the_same(one: object, other: object) -> None:
    """Also with NaN, cycles, sets in another order."""
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        ((1,), [1]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, 2], [1]),
        (Point(1.0), Point(2.0)),
        (Plain([1]), Plain([2])),
        (np.array([1]), np.array([1.0])),
        (np.zeros((2, 1)), np.zeros((1, 2))),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})),
        (pd.Series([1]), pd.Series([1.0])),
        (pd.Series([1], name="a"), pd.Series([1], name="b")),
        (pl.Series("a", [1]), pl.Series("b", [1])),
        (pl.Series("a", [1]), pl.Series("a", [1.0])),
    ],
)
def test_not_the_same(one: object, other: object) -> None:
    """Programs can tell these apart."""
    assert not same(one, other)


def layers(start: object, count: int) -> object:
    """Nested sets, each of which contains the one below and another one with it."""
    found = frozenset({start})
    for _ in range(count):
        found = frozenset({found, frozenset({found})})
    return found


def test_sets_in_layers_are_compared_in_no_time() -> None:
    """Written out, forty layers are more than a hundred million sets; a jail makes them with one short line."""
    assert same(layers(1, 40), layers(1, 40))
    assert not same(layers(1, 40), layers(2, 40))


def test_sharing_counts() -> None:
    """Two equal lists are not the same list twice, also under different names."""
    shared: list[int] = []
    assert not same([shared, shared], [[], []])
    assert ("b",) == differences({"a": shared, "b": shared}, {"a": [], "b": []})


def test_missing_names_differ() -> None:
    """On either side."""
    assert ("a", "c") == differences({"a": 1, "b": 2}, {"b": 2, "c": 3})


def test_addresses_in_text_do_not_count() -> None:
    """A repr contains an object's address; other hexadecimal numbers count."""
    assert same_text("<f at 0x7f00aabbcc01>", "<f at 0x7f00aabbcc02>")
    assert not same_text("0x1", "0x2")


def test_the_name_of_an_index_counts() -> None:
    """Of rows and of columns, which pandas' own comparison ignores."""
    one, other = (pd.DataFrame({"a": [1]}) for _ in range(2))
    assert same(one, other)
    other.index.name = "n"
    assert not same(one, other)
    one.index.name, one.columns.name = "n", "c"
    assert not same(one, other)
    assert not same(pd.Series([1], index=one.index), pd.Series([1]))
