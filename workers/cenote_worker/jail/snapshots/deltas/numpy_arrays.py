"""Small arrays and numbers of numpy, described so that the rebuilt one is indistinguishable.

Only arrays of numbers qualify, if they own their memory or are a whole view of an array that no other object refers
to. Then shape, order in memory, whether it is writable, and the bytes are a complete description.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Final
from weakref import getweakrefcount

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST_BYTES: Final = 4_096
"""Bytes of one array: half of what may be sent for a step."""

_KINDS: Final = "biufc"

_ONE: Final = 2
"""Python's reference count of an object with one referrer: that one, and the argument."""

_Layout = tuple[tuple[int, ...], tuple[int, ...], bool]
"""Shape, strides, and whether the last axis is the innermost one in memory; otherwise the first axis is."""

ArrayDescription = tuple[str, bytes, _Layout | None, _Layout | None, bool]
"""Type; bytes in memory order; the array's layout, and that of the array that owns the memory, if that is another
one; whether it is writable. A number has no layout.
"""

_count = sys.getrefcount
_modules = sys.modules


def is_one(value: object) -> bool:
    """Whether numpy has a single instance of it, as Python has of True, which `rebuild_array` gives."""
    numpy = _modules.get("numpy")
    return numpy is not None and type(value) is numpy.bool_


def is_plain(value: Any) -> bool:
    """Whether `describe_array` describes it, or would if no other object referred to the array that it is a view
    of."""
    numpy = _modules.get("numpy")
    if numpy is None:
        return False
    if type(value) is not numpy.ndarray:
        return type(value) in _types_of_numbers(numpy) and _is_of_numbers(value, numpy)
    return (
        value.nbytes <= MOST_BYTES
        and _is_of_numbers(value, numpy)
        and value.flags.forc
        and not getweakrefcount(value)
    )


def is_inert(value: Any) -> bool:
    """Whether it runs no code when it is released: numbers, in numpy's memory."""
    numpy = _modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return is_plain(value)
    base = value.base
    return (
        _is_of_numbers(value, numpy)
        and (
            base is None or (type(base) is numpy.ndarray and base.base is None and not getweakrefcount(base))
        )
        and not getweakrefcount(value)
    )


def describe_array(value: Any) -> ArrayDescription | None:
    """None for anything else. References to the value itself are not checked."""
    if not is_plain(value):
        return None
    kind, numpy = value.dtype.str, _modules["numpy"]
    if type(value) is not numpy.ndarray:
        return kind, value.tobytes(), None, None, False
    if value.flags.owndata:
        owner, of = value, None
    elif type(value.base) is numpy.ndarray and _count(value.base) == _ONE:  # no variable may have it
        owner = value.base
        of = _layout(owner) if _is_whole(owner, value) else None
    else:
        return None
    if (owner is not value and of is None) or not _is_usual(owner, numpy):
        return None
    data = (value if value.flags.c_contiguous else value.T).tobytes()
    return kind, data, _layout(value), of, bool(value.flags.writeable)


def rebuild_array(told: ArrayDescription) -> object:
    kind, data, layout, of, writeable = told
    numpy: Any = _modules["numpy"]
    if layout is None:
        return numpy.frombuffer(data, kind)[0]
    if of is None:
        value = _filled(numpy, kind, data, layout)
    else:
        shape, strides, _ = layout
        value = numpy.ndarray(shape, kind, _flat(_filled(numpy, kind, data, of)), 0, strides)
    value.flags.writeable = writeable
    return value


@functools.cache
def _types_of_numbers(numpy: Any) -> frozenset[type]:
    """numpy's own types: nothing is asked of objects of other classes."""
    return frozenset(numpy.dtype(code).type for code in numpy.typecodes["All"] if code not in "OSUVMm")


def _is_of_numbers(value: Any, numpy: Any) -> bool:
    """Whether its type is a single instance of numpy's, so that no user's type comes with it."""
    return value.dtype.kind in _KINDS and numpy.dtype(value.dtype.str) is value.dtype


def _layout(value: Any) -> _Layout:
    return value.shape, value.strides, bool(value.flags.c_contiguous)


def _is_usual(owner: Any, numpy: Any) -> bool:
    """Whether numpy would make it with the same strides: those of axes of length one may be any."""
    order = "C" if owner.flags.c_contiguous else "F"
    return bool(owner.strides == numpy.empty(owner.shape, owner.dtype, order).strides)


def _is_whole(owner: Any, view: Any) -> bool:
    """Whether all its memory is in the view, and it has no other state."""
    return bool(
        owner.flags.owndata
        and owner.flags.forc
        and owner.flags.writeable
        and owner.nbytes == view.nbytes
        and owner.dtype is view.dtype
        and not getweakrefcount(owner)
    )


def _filled(numpy: Any, kind: str, data: bytes, layout: _Layout) -> Any:
    """A new array that owns its memory."""
    shape, _, is_c = layout
    value = numpy.empty(shape, kind, order="C" if is_c else "F")
    _flat(value)[:] = numpy.frombuffer(data, kind)
    return value


def _flat(value: Any) -> Any:
    return (value if value.flags.c_contiguous else value.T).reshape(-1)
