"""Amount of memory that a write to a part of an array touches."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from cenote_worker.jail.snapshots.sweep_extent import index_of, reached

PAGE = 4096
ROWS = np.zeros((100, 10 * PAGE), dtype=np.int8)
LINE = np.zeros(100 * 512)

PARTS = (
    (ROWS.nbytes, ROWS, np.s_[:]),
    (ROWS.nbytes, ROWS, np.s_[:, ::2]),
    (ROWS.nbytes, ROWS, np.s_[..., None]),
    (50 * 10 * PAGE, ROWS, np.s_[:50]),
    (50 * 10 * PAGE, ROWS, np.s_[::-2]),
    (100 * PAGE, ROWS, np.s_[:, 0]),
    (100 * 2 * PAGE, ROWS, np.s_[:, -2 * PAGE :]),
    (10 * PAGE, ROWS, 5),
    (0, ROWS, np.s_[5, 5]),
    (0, ROWS, np.s_[:0]),
    (0, ROWS, 100),
    (0, ROWS, np.s_[::0]),
    (0, ROWS, np.s_[np.arange(3), 0]),
)


@pytest.mark.parametrize("part", PARTS)
def test_parts_by_numbers_and_slices(part: tuple[int, np.ndarray, object]) -> None:
    """Whole pages, each once; a single value is not counted, and a wrong index is left to the cell."""
    expected, array, index = part
    assert expected == reached(array, index)


PLACES = (
    (LINE.nbytes, LINE, np.arange(LINE.size)),
    (10 * PAGE, LINE, np.arange(0, 10 * 512, 64)),
    (LINE.nbytes, LINE, np.random.default_rng(0).permutation(LINE.size)),
    (30 * 10 * PAGE, ROWS, np.arange(30)),
    (LINE.nbytes, LINE, LINE == 0),
    (0, LINE, LINE != 0),
    (LINE.nbytes // 4, LINE, np.arange(LINE.size) < LINE.size // 4),
    (ROWS.nbytes // 2, ROWS, np.arange(100) % 2 == 0),
    (0, LINE, np.zeros(7, dtype=bool)),
    (0, LINE[::2], np.arange(9)),
    (0, LINE, np.zeros(3)),
)


@pytest.mark.parametrize("case", PLACES)
def test_places_one_by_one(case: tuple[int, np.ndarray, np.ndarray]) -> None:
    """Adjacent places share their pages; scattered ones do not, up to the whole array."""
    expected, array, places = case
    assert expected == pytest.approx(reached(array, places), abs=PAGE)


def test_an_index_is_numbers_slices_and_names() -> None:
    """Nothing in it is run."""
    code = ast.parse("a[-1, :n, ..., None, 2::3]", mode="eval").body
    assert isinstance(code, ast.Subscript)
    assert (-1, slice(None, 7, None), ..., None, slice(2, None, 3)) == index_of(
        code.slice, {"n": 7}.__getitem__
    )


@pytest.mark.parametrize("index", ["f(n)", "n + 1", "'n'", "1.5", "n > 0", "[1]"])
def test_anything_else_is_not_looked_at(index: str) -> None:
    """The cell runs it, once."""
    with pytest.raises(ValueError, match="no plain index"):
        index_of(ast.parse(index, mode="eval").body, {"n": 7}.__getitem__)
