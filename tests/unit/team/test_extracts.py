"""Extracts of values as text: ranges, and search positions."""

from __future__ import annotations

from collections import deque

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.jail.rendering.text_slices import occurrences, piece, preview

FRAME = pd.DataFrame({"name": [f"bird {n}" for n in range(10_000)], "grams": range(10_000)})
NESTED = [{"id": n, "tags": ["a", f"tag-{n}"]} for n in range(9_000)]


@pytest.mark.parametrize(
    ("value", "start", "stop", "text"),
    [
        ("abcdefgh", 2, 5, "characters 2:5 of 8\ncde"),
        ("abcdefgh", -2, 100, "characters 6:8 of 8\ngh"),
        ("abc", 5, 2, "characters 3:3 of 3\n"),
        (list(range(1000)), 998, 1000, "items 998:1000 of 1000\n[998, 999]"),
        (range(1000), 0, 2, "items 0:2 of 1000\nrange(0, 2)"),
        (deque([7, 8, 9]), 1, 2, "items 1:2 of 3\n[8]"),
        ({"a": 1, "b": 2, "c": 3}, 1, 3, "entries 1:3 of 3\nb: 2\nc: 3"),
        (np.arange(100) * 2, 10, 12, "rows 10:12 of 100\narray (2,) int64: [20, 22]"),
        (3.25, 0, 20, "characters 0:4 of 4\n3.25"),
    ],
)
def test_a_range_is_counted_as_slices_are(value: object, start: int, stop: int, text: str) -> None:
    """Ends beyond the value, negative ones, and none at all included."""
    assert text == piece(value, start, stop)


@pytest.mark.parametrize("frame", [FRAME, pa.Table.from_pandas(FRAME)], ids=["pandas", "arrow"])
def test_rows_of_a_frame(frame: object) -> None:
    """A range of a large table costs no more than its rows."""
    text = piece(frame, 5_000, 5_003)
    assert text.startswith("rows 5000:5003 of 10000\n")
    assert [True, True, True, False] == [f"bird {n}" in text for n in (5_000, 5_001, 5_002, 5_003)]
    assert "9999: bird 9999 | 9999" in occurrences(FRAME, "9999", 5)
    assert "bird 7777" in occurrences(frame, "bird 7777", 5)


def test_places_are_found_across_the_whole_value() -> None:
    """Beyond the size of one search chunk; the position is that of the item."""
    assert "8999: {'id': 8999, 'tags': ['a', 'tag-8999']}" == occurrences(NESTED, "tag-8999", 5)
    assert "1: b: [1, 'needle']" == occurrences({"a": 0, "b": [1, "needle"]}, "needle", 5)


def test_as_many_places_as_were_asked_for() -> None:
    """At the number, and one past it: then the result says that there are more."""
    assert "0: xa\n2: xb" == occurrences(["xa", "y", "xb"], "x", 2)
    assert "0: xa\n... more were not looked for" == occurrences(["xa", "y", "xb"], "x", 1)
    assert "not in any of 3 items" == occurrences(["xa", "y", "xb"], "z", 2)


def test_places_in_a_text_have_their_surroundings() -> None:
    """On one line, truncated on either side."""
    text = "a" * 500 + "\nneedle\n" + "b" * 500
    (line,) = occurrences(text, "needle", 5).split("\n")
    assert line == f"501: ...{'a' * 79} needle {'b' * 79}..."


@given(st.text(alphabet="ab", max_size=30), st.text(alphabet="ab", min_size=1, max_size=3))
def test_every_place_in_a_text_is_one(text: str, wanted: str) -> None:
    """Each reported position is right, and there is one if and only if the text contains it."""
    found = occurrences(text, wanted, 100)
    if wanted not in text:
        assert found.startswith("not in any")
        return
    positions = [int(line.partition(":")[0]) for line in found.split("\n")]
    assert all(text.startswith(wanted, position) for position in positions)
    assert text.count(wanted) == len(positions)


def test_a_preview_is_short_and_the_same_for_equal_values() -> None:
    """Head and tail, whatever the size."""
    assert preview(FRAME) == preview(FRAME.copy())
    assert len(preview(FRAME)) < 500
    assert "bird 9999" in preview(FRAME)
