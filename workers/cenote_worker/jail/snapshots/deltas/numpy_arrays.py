"""Small arrays and numbers of numpy, told so that nobody can tell another one from them.

Only arrays of numbers are, which own their memory or are all there is of an array that nobody else has: then shape,
order in memory, whether it may be written to and the bytes are all that there is.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Final
from weakref import getweakrefcount

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST_BYTES: Final = 4_096
"""Of one: half of what may be told of a step."""

_KINDS: Final = "biufc"

_ONE: Final = 2
"""What Python counts of an object that one other has: that one, and the argument."""

_Layout = tuple[tuple[int, ...], tuple[int, ...], bool]
"""Shape, strides, and whether its last axis is the innermost one in memory: the first is otherwise."""

ArrayDescription = tuple[str, bytes, _Layout | None, _Layout | None, bool]
"""Type; bytes in the order in which they lie; how an array lies, and the one whose memory it is, if another one is;
whether it may be written to. A number has no layout.
"""

_count = sys.getrefcount
_modules = sys.modules


def is_one(value: object) -> bool:
    """Whether numpy has it once, as Python has True, and `rebuild_array` gives that."""
    numpy = _modules.get("numpy")
    return numpy is not None and type(value) is numpy.bool_


def is_plain(value: Any) -> bool:
    """Whether `describe_array` tells of it, or would if nobody else had the array that it is a view of."""
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
    """Whether it does nothing when it goes: numbers, in memory of numpy's."""
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
    """None for anything else. Whoever has the value itself is not looked at."""
    if not is_plain(value):
        return None
    kind, numpy = value.dtype.str, _modules["numpy"]
    if type(value) is not numpy.ndarray:
        return kind, value.tobytes(), None, None, False
    if value.flags.owndata:
        owner, of = value, None
    elif type(value.base) is numpy.ndarray and _count(value.base) == _ONE:  # no variable may have it by now
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
    """numpy's own: of no object of another class anything is asked."""
    return frozenset(numpy.dtype(code).type for code in numpy.typecodes["All"] if code not in "OSUVMm")


def _is_of_numbers(value: Any, numpy: Any) -> bool:
    """Of a type that numpy has once, so that nobody's own goes with it."""
    return value.dtype.kind in _KINDS and numpy.dtype(value.dtype.str) is value.dtype


def _layout(value: Any) -> _Layout:
    return value.shape, value.strides, bool(value.flags.c_contiguous)


def _is_usual(owner: Any, numpy: Any) -> bool:
    """Whether numpy would make it with the same strides: those of axes that are one long may be any."""
    order = "C" if owner.flags.c_contiguous else "F"
    return bool(owner.strides == numpy.empty(owner.shape, owner.dtype, order).strides)


def _is_whole(owner: Any, view: Any) -> bool:
    """Whether all its memory is in the view, and it is nothing else by itself."""
    return bool(
        owner.flags.owndata
        and owner.flags.forc
        and owner.flags.writeable
        and owner.nbytes == view.nbytes
        and owner.dtype is view.dtype
        and not getweakrefcount(owner)
    )


def _filled(numpy: Any, kind: str, data: bytes, layout: _Layout) -> Any:
    """It owns its memory."""
    shape, _, is_c = layout
    value = numpy.empty(shape, kind, order="C" if is_c else "F")
    _flat(value)[:] = numpy.frombuffer(data, kind)
    return value


def _flat(value: Any) -> Any:
    return (value if value.flags.c_contiguous else value.T).reshape(-1)
