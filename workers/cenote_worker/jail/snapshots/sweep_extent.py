"""How much memory a write to a part of an array, or to rows and columns of a pandas frame, affects, page by page.

Nothing is written, and little is read. If pandas makes a new array, as when the type of a column changes, that counts
as a write in place: the error costs a copy.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from mmap import PAGESIZE
from typing import TYPE_CHECKING, Any, Final

from cenote_worker.jail.snapshots.sweep_syntax import SweptPart, is_all
from cenote_worker.process.pristine import BUILTINS

if TYPE_CHECKING:
    import numpy as np


__builtins__ = BUILTINS

_SAMPLES: Final = 1000
"""Places of an index that picks them one by one: enough to distinguish dense from sparse ones."""


def index_of(code: ast.expr, value_of: Callable[[str], object]) -> object:
    """The value of an index expression of numbers, slices, and names of numbers and arrays.

    Raises ValueError for anything else, and any error of `value_of` for a name.
    """
    match code:
        case ast.Constant(value=value) if value is ... or value is None or type(value) is int:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case ast.Name(id=name):
            return value_of(name)
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(part and index_of(part, value_of) for part in (lower, upper, step)))
        case ast.Tuple(elts=parts):
            return tuple(index_of(part, value_of) for part in parts)
    raise ValueError("no plain index")


def reached(array: np.ndarray[Any, Any], index: Any) -> int:
    """Bytes of the pages, estimated; 0 if unknown. array: of numpy's own class."""
    if isinstance(index, type(array)):
        return _at_places(array, index)
    if isinstance(index, tuple) and any(isinstance(part, type(array)) for part in index):
        return 0
    try:
        part = array[index]
    except (IndexError, ValueError):  # a step of zero
        return 0
    return _in_part(part) if type(part) is type(array) else 0


def _in_part(part: np.ndarray[Any, Any]) -> int:
    """Items no further apart than a page form a run, and runs are on separate pages."""
    if not part.size:
        return 0
    runs, length = 1, part.itemsize
    for stride, count in sorted(zip(map(abs, part.strides), part.shape, strict=True)):
        if stride <= max(length, PAGESIZE):
            length += stride * (count - 1)
        else:
            runs *= count
    return runs * _whole_pages(length)


def _at_places(array: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> int:
    plain = array.flags.c_contiguous and places.flags.c_contiguous
    if not (plain and array.ndim and array.nbytes and places.size):
        return 0
    flat = places.reshape(-1)
    if places.dtype.kind == "b" and array.size % flat.size == 0:
        return _under_mask(array, flat)
    return _at_numbers(array, flat) if places.dtype.kind in "iu" else 0


def _under_mask(array: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> int:
    a_page = max(1, PAGESIZE // (array.nbytes // mask.size))
    pages = mask[: mask.size // a_page * a_page].reshape(-1, a_page)
    if not len(pages):
        return 0
    return int(pages[:: 1 + len(pages) // _SAMPLES].any(axis=1).mean() * array.nbytes)


def _at_numbers(array: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> int:
    """The distance from one place to the next, but at most one page for each."""
    each, every = array.nbytes // len(array), 1 + numbers.size // _SAMPLES
    there = numbers[1::every].astype("i8")
    if not len(there):
        return 0
    way = abs(there - numbers[:-1:every].astype("i8")) * each
    return min(array.nbytes, int(way.clip(0, _whole_pages(each)).mean() * numbers.size))


def _whole_pages(length: int) -> int:
    return -(-length // PAGESIZE) * PAGESIZE


_MOST_COLUMNS: Final = 1000

_NUMBER: Final = 8
"""Bytes of an item of most columns."""

_A_PAGE: Final = 512
"""Rows on a page."""

_SAMPLES_OF_FRAMES: Final = 100
"""Such pages that are sampled, to estimate on how many of them a condition picks something."""

_Condition = Callable[[Any, Any], Any]
_CONDITIONS: Final[Mapping[type[ast.cmpop], _Condition]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def reached_in_frame(frame: object, part: SweptPart, namespace: Mapping[str, object]) -> int:
    """Bytes of the pages, estimated; 0 if unknown. part: by `loc` or `iloc`."""
    if not is_frame(frame, 0):
        return 0
    rows, columns = part.index, None
    if isinstance(part.index, ast.Tuple) and len(part.index.elts) == 2:
        rows, columns = part.index.elts
    with suppress(Exception):  # a cell may have changed pandas
        share = _share(rows, lambda name: namespace.get(part.names[name]))
        if share:
            return int(share * sum(reached(each, ...) for each in _written(frame, part.by, columns)))
    return 0


def is_frame(value: object, size: int) -> bool:
    """Whether it is a frame or series of pandas' own, which may have that many bytes."""
    pandas = sys.modules.get("pandas")
    with suppress(Exception):  # a cell may have changed pandas, and an import may be under way
        kinds = (pandas.DataFrame, pandas.Series) if pandas is not None else ()
        return type(value) in kinds and value.size * _NUMBER >= size  # type: ignore[attr-defined]
    return False


def _written(frame: Any, by: str, columns: ast.expr | None) -> Iterator[np.ndarray[Any, Any]]:
    """numpy's memory that the columns are in."""
    if type(frame) is sys.modules["pandas"].Series:
        yield from _numbers(frame)
    elif frame.shape[1] <= _MOST_COLUMNS:
        match columns:
            case ast.Constant(value=name):
                yield from _numbers(_column(frame, name, by))
            case _ if columns is None or is_all(columns):
                places = range(frame.shape[1])
                found = [each for place in places for each in _numbers(frame.iloc[:, place])]
                # Columns of one table are side by side, on the same pages.
                yield from {id(table): table for table in map(_table, found)}.values()


def _column(frame: Any, name: object, by: str) -> Any:
    """Not `frame[name]`, which some versions of pandas cache."""
    return frame.iloc[:, name if by == "iloc" else frame.columns.get_loc(name)]


def _table(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    base = column.base
    return base if type(base) is type(column) else column


def _numbers(series: Any) -> Iterator[np.ndarray[Any, Any]]:
    numpy, values = sys.modules["numpy"], series.values
    if type(values) is numpy.ndarray and values.dtype.kind in "biufcmM":
        yield values


def _share(rows: ast.expr, value_of: Callable[[str], object]) -> float:
    """The share of a column's pages on which something is written."""
    match rows:
        case _ if is_all(rows):
            return 1.0
        case ast.Name(id=name):
            return _share_of(value_of(name), "b", lambda some: some)
        case ast.Compare(
            left=ast.Subscript(value=ast.Name(id=frame), slice=ast.Constant(value=name)),
            ops=[condition],
            comparators=[ast.Constant(value=int() | float() as value)],
        ) if type(found := value_of(frame)) is sys.modules["pandas"].DataFrame:
            compare = _CONDITIONS[type(condition)]
            return _share_of(_column(found, name, "loc"), "iuf", lambda some: compare(some, value))
    return 0.0


def _share_of(values: Any, kinds: str, picked: Callable[[Any], Any]) -> float:
    """values: a column, or an array, of numbers of these kinds. picked: selects some of them."""
    pandas, numpy = sys.modules["pandas"], sys.modules["numpy"]
    array = values.values if type(values) is pandas.Series else values
    if type(array) is not numpy.ndarray or array.ndim != 1 or array.dtype.kind not in kinds or not len(array):
        return 0.0
    starts = range(0, len(array), _A_PAGE * (1 + len(array) // (_A_PAGE * _SAMPLES_OF_FRAMES)))
    hits = [bool(picked(array[start : start + _A_PAGE]).any()) for start in starts]
    return sum(hits) / len(hits)
