"""Views of numpy arrays, so that arrays that share memory still share it in another process.

numpy itself stores a view as an independent array: after a restore, a write to one would not show in the other.
"""

from __future__ import annotations

import array
import importlib
import mmap
import sys
from typing import Any, Final

from cenote_security.sealed_memory import PrivatePages
from cenote_worker.jail.values.instance_pickles import says_how_to_pickle
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MEMORIES: Final = (bytearray, array.array)

View = tuple[object, int, tuple[int, ...], tuple[int, ...], Any, bool]
"""Memory, offset in bytes, shape, strides, dtype, and whether it is writable."""


def view_of(value: Any) -> View | None:
    """The layout of a plain array in memory of another object; None for an array that owns its memory, and other
    objects."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return None
    owner = _owner(value.base, numpy)
    if owner is None:
        return None if value.flags.forc else _permuted(value)
    return owner, *_within(owner, value, numpy)


def owned_view(value: Any) -> View | None:
    """Describes a plain array as one that owns its memory, although it is a view."""
    return None if value.flags.forc else _permuted(value)


def _within(owner: Any, value: Any, numpy: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], Any, bool]:
    start = value.__array_interface__["data"][0]
    offset = start - _address(owner, numpy)
    return offset, value.shape, value.strides, value.dtype, bool(value.flags.writeable)


def derived_view(value: Any) -> tuple[View, bool] | None:
    """The memory layout of an array of a derived class, and whether it owns the memory: then it is pickled as a plain
    array with a view. None for anything else, and for an array that a library pickles in its own way."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is numpy.ndarray or not isinstance(value, numpy.ndarray):
        return None
    if _says_library(type(value), numpy.ndarray):
        return None
    owner = _owner(value.base, numpy)
    if owner is not None:
        return (owner, *_within(owner, value, numpy)), False
    plain = numpy.ndarray.view(value, numpy.ndarray)
    return (plain, *_within(plain, value, numpy)), True


def derived(cls: Any, *view: Any) -> Any:
    """An array of this class over memory that was rebuilt."""
    numpy = importlib.import_module("numpy")
    return numpy.ndarray.view(over_memory(*view), cls)


def record_within(value: Any) -> tuple[Any, ...] | None:
    """The memory that a record of a table is in, its offset, and its type; None for any other value."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.void) or value.dtype.names is None or value.base is None:
        return None
    owner = value.base if isinstance(value.base, numpy.ndarray) else None
    if owner is not None:
        inner = _owner(owner.base, numpy)
        owner = owner if inner is None else inner
    if owner is None:
        return None
    return owner, value.__array_interface__["data"][0] - _address(owner, numpy), value.dtype


def record(owner: Any, offset: int, dtype: Any) -> Any:
    return over_memory(owner, offset, (), (), dtype, writeable=True)[()]


def number_within(value: Any) -> tuple[Any, ...] | None:
    """The class of a `ctypes` object that is in memory of another one, that memory, and the offset; None for any
    other value."""
    if type(type(value)).__module__ != "_ctypes":
        return None
    ctypes: Any = sys.modules["ctypes"]
    owner = value._b_base_
    if owner is not None:
        return type(value), owner, ctypes.addressof(value) - ctypes.addressof(owner)
    held = value._objects
    for view in held.values() if type(held) is dict else (held,):
        if type(view) is memoryview and isinstance(view.obj, _MEMORIES):
            start = (
                ctypes.addressof((ctypes.c_char * len(view.obj)).from_buffer(view.obj))
                if len(view.obj)
                else 0
            )
            return type(value), view.obj, ctypes.addressof(value) - start
    return None


def number(cls: Any, owner: Any, offset: int) -> Any:
    return cls.from_buffer(owner, offset)


def _says_library(cls: type, array: type) -> bool:
    """Whether a library other than numpy pickles arrays of this class in its own way."""
    for base in cls.__mro__[: cls.__mro__.index(array)]:
        if base.__module__.partition(".")[0] == "numpy":
            continue
        if says_how_to_pickle(base, alone=True):
            return True
    return False


def lies_in_file(value: Any) -> bool:
    """Whether it is an array over memory that the user has mapped: a write to one changes the other."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return False
    while value is not None and type(value) is not mmap.mmap:
        value = value.obj if isinstance(value, memoryview) else getattr(value, "base", None)
    return value is not None


def bytes_of(value: Any) -> Any:
    """The memory of a writable array that owns it, as bytes in memory order; None for anything else."""
    numpy = sys.modules.get("numpy")
    if (
        numpy is None
        or type(value) is not numpy.ndarray
        or value.dtype.hasobject
        or not value.flags.writeable
    ):
        return None
    if not value.flags.forc or not value.size or not value.dtype.isbuiltin:
        return None
    return _flat(value)


def plain_bytes_of(value: Any) -> Any:
    """Like `bytes_of`, but also for read-only and empty arrays, and for those of times, texts or records."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or not value.flags.forc:
        return None
    if value.dtype.hasobject or value.dtype.kind == "T" or not value.itemsize:
        return None
    return _flat(value)


def _flat(value: Any) -> Any:
    return (value if value.flags.c_contiguous else value.T).reshape(-1).view("u1")


def over_memory(
    memory: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, writeable: bool
) -> Any:
    """The same view of memory that was rebuilt."""
    numpy = importlib.import_module("numpy")
    if isinstance(memory, numpy.ndarray) and type(memory) is not numpy.ndarray:
        memory = numpy.ndarray.view(memory, numpy.ndarray)
    if isinstance(memory, numpy.ndarray) and (offset, shape, strides, dtype) == (
        0,
        memory.shape,
        memory.strides,
        memory.dtype,
    ):
        view = memory[...]
    elif isinstance(memory, numpy.ndarray) and dtype.hasobject:
        flat = memory.reshape(-1, order="A")[offset // memory.itemsize :] if memory.size else memory
        view = numpy.lib.stride_tricks.as_strided(flat, shape, strides)
    else:
        if isinstance(memory, memoryview) and type(memory.obj) is not PrivatePages:
            memory = numpy.array(memory, numpy.uint8)  # not in the memory that came with other parts
        contiguous = memory.transpose(_order(memory)) if isinstance(memory, numpy.ndarray) else memory
        view = numpy.ndarray(shape, dtype, contiguous, offset, strides)
    if not writeable:
        view.flags.writeable = False
    return view


def copied_from(
    memory: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, writeable: bool
) -> Any:
    """An array with its own memory and the same layout. An array that numpy rebuilds uses the stored memory."""
    copied = over_memory(memory, offset, shape, strides, dtype, writeable=False).copy(order="K")
    copied.flags.writeable = writeable
    return copied


def _permuted(value: Any) -> View:
    """An array that owns its memory and has an unusual axis order, which numpy would not keep."""
    memory = value.transpose(_order(value)).copy()
    return memory, 0, value.shape, value.strides, value.dtype, bool(value.flags.writeable)


def _order(value: Any) -> list[int]:
    """The axes in memory order, outermost first."""
    return sorted(
        range(value.ndim), key=lambda axis: (value.strides[axis], value.shape[axis] > 1), reverse=True
    )


def _owner(base: Any, numpy: Any) -> Any:
    """The array or the mutable memory at the end of a chain of bases; None when it is something else.

    An array over a mapped or immutable buffer counts as an owner: nothing but arrays can share that.
    """
    while base is not None:
        if isinstance(base, numpy.ndarray):
            inner = _owner(base.base, numpy)
            return base if inner is None else inner
        if isinstance(base, memoryview):
            base = base.obj
        elif isinstance(base, _MEMORIES):
            return base
        else:
            base = getattr(base, "base", None)  # numpy's own holder behind `as_strided`
    return None


def _address(owner: Any, numpy: Any) -> int:
    interface = owner if isinstance(owner, numpy.ndarray) else numpy.frombuffer(owner, dtype=numpy.uint8)
    return int(interface.__array_interface__["data"][0])
