"""Small frames and columns of pandas, described so that the rebuilt one is indistinguishable.

pandas shares memory, indexes and caches between frames, and records the sharing. So a frame is rebuilt at once from
the description and compared: its content, its layout in memory, and the reference counts of its parts. If another
object refers to a part as well, there is no description. But an index may be a view of an index of an unchanged frame
in the copy: then the rebuilt index is a view of that one again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cenote_worker.jail.snapshots.deltas import numpy_arrays
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MOST_BLOCKS: Final = 20
_MOST_CHUNKS: Final = 4
"""Chunks of text, in one column or index."""

_PARTS: Final = frozenset(("_mgr", "_attrs", "_flags", "_name"))
_NAMES: Final = frozenset((type(None), str, int))

_Column = tuple[bool, Any]
"""Whether it is text: then Arrow's chunks, with length, offset, null count, and memory. Otherwise what `numpy_arrays`
describes.
"""

_Axis = tuple[str, Any, Any]
"""Kind, content, name. `range`: its numbers. `of`: the name of a frame and the number of its axis."""

FrameDescription = tuple[Any, list[tuple[_Column, list[int]]], list[_Axis]]
"""Name of a column, in a list, None for a frame; blocks with their places; axes."""

Known = Mapping[int, tuple[str, int]]
"""Axes of frames that are in the copy: a name and the number of the axis, by the id of what all views of an axis
share."""

_count = sys.getrefcount
_modules = sys.modules
_get = object.__getattribute__


def axes_of(frames: Iterable[tuple[str, object]]) -> Known:
    """Axes of frames by the frames' names; other objects are skipped."""
    return {
        id(axis._cache): (name, place)
        for name, frame in frames
        if is_frame(frame)
        for place, axis in enumerate(_table(frame)["_mgr"].axes)
        if _is_axis(axis)
    }


def _is_axis(value: object) -> bool:
    pandas = _modules["pandas"]
    return type(value) in (pandas.Index, pandas.RangeIndex)


def is_frame(value: object) -> bool:
    """Whether it is of pandas' own classes, inside too: nothing is asked of objects of other classes."""
    pandas = _modules.get("pandas")
    if pandas is None or type(value) not in (pandas.DataFrame, pandas.Series):
        return False
    managers = pandas.core.internals.managers
    return type(_table(value).get("_mgr")) in (managers.BlockManager, managers.SingleBlockManager)


def is_inert(value: object) -> bool:
    """Whether a frame runs no code when it is released: it has numbers and text, in memory of numpy and Arrow."""
    if not is_frame(value) or not _is_bare(value):
        return False
    manager, pandas = _table(value)["_mgr"], _modules["pandas"]
    kept = [axis._data for axis in manager.axes if type(axis) is pandas.Index]
    return all(
        numpy_arrays.is_inert(values) or type(values) is pandas.arrays.ArrowStringArray
        for values in (*kept, *(block.values for block in manager.blocks))
    )


def describe_frame(value: Any, namespace: Mapping[str, object], known: Known) -> FrameDescription | None:
    """None for anything else. References to the value itself are not checked."""
    if not is_frame(value) or not _is_bare(value):
        return None
    try:
        told = _told(value, known)
        # Both are looked at in the same way, so that any extra reference is counted in both.
        if told is None or _seen(rebuild_frame(told, namespace), told) != _seen(value, told):
            return None
    except (AttributeError, TypeError, ValueError):  # a part that is different in another version of pandas
        return None
    return told


def rebuild_frame(told: FrameDescription, namespace: Mapping[str, object]) -> object:
    name, columns, axes = told
    pandas: Any = _modules["pandas"]
    managers, blocks = pandas.core.internals.managers, pandas.core.internals.blocks
    made = [_axis(axis, namespace, pandas) for axis in axes]
    placed = tuple(
        blocks.new_block(
            _column(column, pandas), pandas._libs.internals.BlockPlacement(slice(*place)), ndim=len(axes)
        )
        for column, place in columns
    )
    if len(axes) == 1:
        value = pandas.Series._from_mgr(managers.SingleBlockManager(placed[0], made[0]), made)
        value._name = name[0]
        return value
    return pandas.DataFrame._from_mgr(managers.BlockManager(placed, made, verify_integrity=False), made)


def _table(value: object) -> dict[str, Any]:
    found: dict[str, Any] = _get(value, "__dict__")
    return found


def _is_bare(value: Any) -> bool:
    """Whether it has only what pandas gives to each. Its flags refer to it weakly; no other object may."""
    table, internals = _table(value), _modules["pandas"].core.internals.blocks
    flags: Any = table.get("_flags")
    return (
        table.keys() <= _PARTS
        and type(table.get("_attrs")) is dict
        and not table["_attrs"]
        and type(flags) is _modules["pandas"].core.flags.Flags
        and vars(flags).keys() == {"_allows_duplicate_labels", "_obj"}
        and flags._allows_duplicate_labels is True
        and len(table["_mgr"].blocks) <= _MOST_BLOCKS
        and {type(block) for block in table["_mgr"].blocks}
        <= {internals.NumpyBlock, internals.ExtensionBlock}
        and all(map(_is_axis, table["_mgr"].axes))
        and type(table.get("_name")) in _NAMES
    )


def _told(value: Any, known: Known) -> FrameDescription | None:
    table, columns = _table(value), list[tuple[_Column, list[int]]]()
    for block in table["_mgr"].blocks:
        places, column = block.mgr_locs.indexer, _told_column(block.values)
        if column is None or type(places) is not slice:
            return None
        columns.append((column, [places.start, places.stop, places.step]))
    axes = [_told_axis(axis, known) for axis in table["_mgr"].axes]
    told_axes = [axis for axis in axes if axis is not None]
    if len(told_axes) != len(axes) or (len(axes) == 1 and len(columns) != 1):
        return None
    return ([table["_name"]] if "_name" in table else None), columns, told_axes


def _told_column(values: Any) -> _Column | None:
    pandas = _modules["pandas"]
    if type(values) is not pandas.arrays.ArrowStringArray:
        told = numpy_arrays.describe_array(values) if type(values) is _modules["numpy"].ndarray else None
        return None if told is None else (False, told)
    chunks = values._pa_array.chunks if values.dtype == "str" else []
    if not 0 < len(chunks) <= _MOST_CHUNKS or sum(map(_memory_of, chunks)) > numpy_arrays.MOST_BYTES:
        return None
    return True, [
        (
            len(chunk),
            chunk.offset,
            chunk.null_count,
            [None if part is None else part.to_pybytes() for part in chunk.buffers()],
        )
        for chunk in chunks
    ]


def _memory_of(chunk: Any) -> int:
    """Bytes. A slice of other chunks counts all of their memory."""
    return sum(part.size for part in chunk.buffers() if part is not None)


def _column(column: _Column, pandas: Any) -> Any:
    is_text, told = column
    if not is_text:
        return numpy_arrays.rebuild_array(told)
    arrow: Any = _modules["pyarrow"]
    kind = arrow.large_string()
    chunks = [
        arrow.Array.from_buffers(
            kind, length, [None if part is None else arrow.py_buffer(part) for part in parts], nulls, offset
        )
        for length, offset, nulls, parts in told
    ]
    dtype = pandas.StringDtype("pyarrow", na_value=_modules["numpy"].nan)
    return pandas.arrays.ArrowStringArray(arrow.chunked_array(chunks, kind), dtype=dtype)


def _told_axis(axis: Any, known: Known) -> _Axis | None:
    pandas = _modules["pandas"]
    if type(axis._name) not in _NAMES:
        return None
    if id(axis._cache) in known:
        return "of", known[id(axis._cache)], axis._name
    if type(axis) is pandas.RangeIndex:
        held = axis._range
        return "range", (held.start, held.stop, held.step), axis._name
    column = _told_column(axis._data) if type(axis) is pandas.Index else None
    return None if column is None else ("index", column, axis._name)


def _axis(axis: _Axis, namespace: Mapping[str, object], pandas: Any) -> Any:
    kind, told, name = axis
    if kind == "range":
        return pandas.RangeIndex._simple_new(range(*told), name)
    if kind == "index":
        return pandas.Index._simple_new(_column(told, pandas), name)
    whose, place = told
    made = _table(namespace[whose])["_mgr"].axes[place].view()
    made._name = name
    return made


def _seen(value: Any, told: FrameDescription) -> list[object]:
    """Reference counts of the parts, and attributes of the parts that `told` leaves out."""
    table = _table(value)
    manager, flags = table["_mgr"], table["_flags"]
    seen: list[object] = [sorted(table), _count(table), _count(manager), _count(flags), _count(flags._obj)]
    seen += [_count(table["_attrs"]), type(manager), _count(manager.axes), len(manager.axes)]
    for block in manager.blocks:
        seen += [type(block), _count(block), block.ndim, *_seen_values(block.values), *_living(block.refs)]
    for axis, (kind, _, _) in zip(manager.axes, told[2], strict=True):
        seen += [type(axis), _count(axis), sorted(_table(axis).keys() - {"_references"})]
        if kind == "of":
            seen += [id(axis._cache), axis._id is None, id(axis._id)]
        else:
            seen += [_count(axis._cache), _count(axis._id), *_living(axis._references)]
            seen += [] if kind == "range" else _seen_values(axis._data)
    return seen


def _seen_values(values: Any) -> list[object]:
    seen = [_count(values), type(values)]
    if type(values) is _modules["numpy"].ndarray:
        return [*seen, values.shape, values.strides, str(values.flags), values.dtype]
    cached = [_count(values._cache)] if "_cache" in _table(values) else []  # since pandas 3.1
    return [*seen, sorted(_table(values)), *cached, values.dtype == "str"]


def _living(references: Any) -> list[object]:
    """The reference count, and the number of live blocks known to share this memory. pandas 3.0 has no references for
    the numbers of a range.
    """
    if references is None:
        return []
    return [_count(references), sum(each() is not None for each in references.referenced_blocks)]
