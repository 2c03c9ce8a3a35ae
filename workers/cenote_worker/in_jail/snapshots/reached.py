"""How much memory it takes to write to a part of an array, page by page. Nothing is written, and little is read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from mmap import PAGESIZE
from typing import TYPE_CHECKING, Any, Final

from cenote_worker.in_jail.pristine import BUILTINS

if TYPE_CHECKING:
    import numpy as np

__builtins__ = BUILTINS

_SAMPLES: Final = 1000
"""Of what picks places one by one: enough to tell those that lie together from those that do not."""


def index_of(code: ast.expr, value_of: Callable[[str], object]) -> object:
    """What is written between brackets, of numbers, slices, and names of numbers and arrays.

    Raises ValueError for anything else, and what `value_of` does for a name.
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
    """Bytes of the pages, estimated; 0 where that is not known. array: of numpy's own class."""
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
    """What lies no further apart than a page is a run, and runs lie on pages of their own."""
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
    """The way from one place to the next, but no more than a page of its own for each."""
    each, every = array.nbytes // len(array), 1 + numbers.size // _SAMPLES
    there = numbers[1::every].astype("i8")
    if not len(there):
        return 0
    way = abs(there - numbers[:-1:every].astype("i8")) * each
    return min(array.nbytes, int(way.clip(0, _whole_pages(each)).mean() * numbers.size))


def _whole_pages(length: int) -> int:
    return -(-length // PAGESIZE) * PAGESIZE
