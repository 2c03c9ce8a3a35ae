"""Atoms and plain containers as bytes, for hashing. Nothing is ever read back."""

from __future__ import annotations

import marshal
from typing import Any, Final

import xxhash

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.exact_types_unsafe import atoms_of

__builtins__ = BUILTINS

_dumps = marshal.dumps
_PLAIN = 2
"""The format without references: those depend on how often an object happens to be referred to."""

_NUMBERS: Final = {int: (b"i", 5), float: (b"g", 9)}
"""The letter of a type, and the bytes of an item with it. An integer of more than 32 bits has another letter."""

_HEADER: Final = 5
"""Bytes before the items of a list or tuple."""

_SAMPLES: Final = 16


def packed(value: Any) -> bytes:
    """Equal for equal values only: types, the order of dictionaries, signs of zeros and bits of NaNs are kept."""
    return _dumps(value, _PLAIN)


def digest_of_numbers(values: list[Any] | tuple[Any, ...]) -> str:
    """Of many numbers of one type; empty where there may be anything else among them, or a NaN.

    Asking each for its type takes longer than packing them all, and their bytes tell: if the first item has the
    letter, it is as long as all that have it, so the second begins behind that, and so on.
    """
    kind = type(values[0])
    step = max(len(values) // _SAMPLES, 1)
    if kind not in _NUMBERS or any(type(each) is not kind for each in values[::step]):
        return ""
    letter, size = _NUMBERS[kind]
    try:
        data = _dumps(values, _PLAIN)
    except ValueError:  # something that has no such form
        return ""
    if len(data) != _HEADER + size * len(values) or data[_HEADER::size].count(letter) != len(values):
        return ""
    if kind is float and _may_have_nan(values):
        return ""
    return xxhash.xxh3_128_hexdigest(data)


def _may_have_nan(values: list[Any] | tuple[Any, ...]) -> bool:
    """Of nothing but floats. Infinite ones may add up to a NaN."""
    if atoms := atoms_of(values):
        return atoms.nan
    total = sum(values)
    return bool(total != total)
