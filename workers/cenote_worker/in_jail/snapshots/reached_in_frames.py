"""How much memory it takes to write to rows and columns of a frame of pandas, page by page.

Nothing is written, and little is read. What pandas makes anew, as where the type of a column changes, counts as if it
were written to in place: the price of that is a copy.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.reached import reached
from cenote_worker.in_jail.snapshots.sweeps import Part, is_all

if TYPE_CHECKING:
    import numpy as np

__builtins__ = BUILTINS

_MOST_COLUMNS: Final = 1000

_NUMBER: Final = 8
"""Bytes of what most columns are made of."""

_A_PAGE: Final = 512
"""Rows: so many of them are on a page."""

_SAMPLES: Final = 100
"""Of such pages, to tell how many of them a condition picks something of."""

_Condition = Callable[[Any, Any], Any]
_CONDITIONS: Final[Mapping[type[ast.cmpop], _Condition]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def reached_in_frame(frame: object, part: Part, namespace: Mapping[str, object]) -> int:
    """Bytes of the pages, estimated; 0 where that is not known. part: by `loc` or `iloc`."""
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
    """Whether it is a frame or series of pandas' own, which may have so many bytes."""
    pandas = sys.modules.get("pandas")
    with suppress(Exception):  # a cell may have changed pandas, and an import may be under way
        kinds = (pandas.DataFrame, pandas.Series) if pandas is not None else ()
        return type(value) in kinds and value.size * _NUMBER >= size  # type: ignore[attr-defined]
    return False


def _written(frame: Any, by: str, columns: ast.expr | None) -> Iterator[np.ndarray[Any, Any]]:
    """Memory of numpy's in which the columns lie."""
    if type(frame) is sys.modules["pandas"].Series:
        yield from _numbers(frame)
    elif frame.shape[1] <= _MOST_COLUMNS:
        match columns:
            case ast.Constant(value=name):
                yield from _numbers(_column(frame, name, by))
            case _ if columns is None or is_all(columns):
                places = range(frame.shape[1])
                found = [each for place in places for each in _numbers(frame.iloc[:, place])]
                # Columns of one table lie side by side, on the same pages.
                yield from {id(table): table for table in map(_table, found)}.values()


def _column(frame: Any, name: object, by: str) -> Any:
    """Not `frame[name]`, which some versions of pandas keep."""
    return frame.iloc[:, name if by == "iloc" else frame.columns.get_loc(name)]


def _table(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    base = column.base
    return base if type(base) is type(column) else column


def _numbers(series: Any) -> Iterator[np.ndarray[Any, Any]]:
    numpy, values = sys.modules["numpy"], series.values
    if type(values) is numpy.ndarray and values.dtype.kind in "biufcmM":
        yield values


def _share(rows: ast.expr, value_of: Callable[[str], object]) -> float:
    """The part of all pages of a column on which something is written."""
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
    """values: a column, or an array, of numbers of these kinds. picked: which of some of them."""
    pandas, numpy = sys.modules["pandas"], sys.modules["numpy"]
    array = values.values if type(values) is pandas.Series else values
    if type(array) is not numpy.ndarray or array.ndim != 1 or array.dtype.kind not in kinds or not len(array):
        return 0.0
    starts = range(0, len(array), _A_PAGE * (1 + len(array) // (_A_PAGE * _SAMPLES)))
    hits = [bool(picked(array[start : start + _A_PAGE]).any()) for start in starts]
    return sum(hits) / len(hits)
