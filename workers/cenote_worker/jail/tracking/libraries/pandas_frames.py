"""Objects of pandas and of Arrow as descriptions.

pandas shares columns between frames and copies them before it writes. So a program cannot see the sharing of memory
that only frames share; an array that a frame was made from without a copy is different.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from cenote_worker.jail.tracking.budget import TOO_LARGE
from cenote_worker.jail.tracking.descriptions.classes import attributes, module_of, mro, qualname
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph
from cenote_worker.jail.tracking.libraries import numpy_arrays
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_get = object.__getattribute__

_OF_FRAMES: Final = frozenset(("_mgr", "_attrs", "_name", "_flags", "_item_cache", "_cacher", "_is_copy"))
"""What pandas itself puts into the dictionary of a frame or a series, besides its own accessors."""


class Frames:
    """Handlers for the classes of an imported pandas."""

    def __init__(self, pandas: ModuleType) -> None:
        self._pandas = pandas
        self._copies_on_write = int(str(pandas.__version__).split(".")[0]) >= 3
        internals = pandas.core.internals
        self._array = type(pandas.core.internals.blocks.np.empty(0))
        self._extensions = pandas.api.extensions.ExtensionArray
        self._backed = pandas._libs.arrays.NDArrayBacked
        self.exact: dict[type, Handler] = {
            pandas.DataFrame: self._frame,
            pandas.Series: self._frame,
            internals.managers.BlockManager: self._manager,
            internals.managers.SingleBlockManager: self._manager,
            pandas.Timestamp: self._moment,
            pandas.Timedelta: self._moment,
            type(pandas.NaT): self._constant,
            type(pandas.NA): self._constant,
            pandas.Period: self._text,
            pandas.CategoricalDtype: self._categories,
        }
        self._by_base: tuple[tuple[type, Handler], ...] = (
            (internals.blocks.Block, self._block),
            (pandas.RangeIndex, self._range),
            (pandas.MultiIndex, self._levels),
            (pandas.Index, self._index),
            (pandas.api.extensions.ExtensionArray, self._extension),
            (pandas.api.extensions.ExtensionDtype, self._text),
            (pandas._libs.tslibs.offsets.BaseOffset, self._offset),
        )

    def handler(self, cls: type) -> Handler | None:
        """A handler for a class of pandas that is known by one of its bases."""
        bases = mro(cls)
        for base, handler in self._by_base:
            if base in bases:
                return handler
        return None

    def _frame(self, graph: ObjectGraph, value: Any) -> object:
        graph.changeable(value)
        graph.packages.add("pandas")
        table = _get(value, "__dict__")
        flags = table.get("_flags")
        held = [(key, graph.token(table.get(key))) for key in ("_mgr", "_attrs", "_name")]
        cls = type(value)
        others = {
            key: item
            for key, item in table.items()
            if key not in _OF_FRAMES and not _is_accessor(item) and not _is_of_class(cls, key, item)
        }
        return (held, flags is not None and flags.allows_duplicate_labels, graph.mapping(others))

    def _manager(self, graph: ObjectGraph, value: Any) -> object:
        return graph.tokens([*value.blocks, *value.axes])

    def _block(self, graph: ObjectGraph, value: Any) -> object:
        values = value.values
        data = self._part(graph, values, covered=self._copies_on_write)
        return (qualname(type(value)), value.ndim, data, value.mgr_locs.as_array.tobytes())

    def _range(self, graph: ObjectGraph, value: Any) -> object:
        _named(graph, value)
        held = value._range
        return (held.start, held.stop, held.step, graph.token(value._name))

    def _levels(self, graph: ObjectGraph, value: Any) -> object:
        """pandas never shows the names of the levels themselves, and does not keep them in pickles."""
        _named(graph, value)
        levels = [self._without_name(graph, each) for each in value._levels]
        return levels, graph.tokens([list(value._codes), list(value._names), value.sortorder])

    def _without_name(self, graph: ObjectGraph, index: Any) -> object:
        if self._pandas.RangeIndex in mro(type(index)):
            held = index._range
            return (held.start, held.stop, held.step)
        return (qualname(type(index)), self._part(graph, index._data, covered=True))

    def _index(self, graph: ObjectGraph, value: Any) -> object:
        _named(graph, value)
        shown = self._part(graph, value._data, covered=True)
        freq = graph.token(getattr(value, "_freq", None))
        return (qualname(type(value)), shown, freq, graph.token(value._name))

    def _extension(self, graph: ObjectGraph, value: Any) -> object:
        """An array that a user holds by itself, and may write to."""
        return self._part(graph, value, covered=False)

    def _part(self, graph: ObjectGraph, value: Any, *, covered: bool) -> object:
        """Values of a column or an index: a numpy array, or an object made of one or two and a type."""
        if type(value) is self._array:
            return numpy_arrays.array(graph, value, covered=covered)
        if self._extensions not in mro(type(value)):
            return _combined(graph, value) if _is_chunked(value) else graph.token(value)
        (graph.cover if covered else graph.changeable)(value)
        if self._backed in mro(type(value)):
            parts = [("", value._ndarray), ("dtype", value._dtype), ("freq", getattr(value, "_freq", None))]
        else:
            parts = [item for item in _get(value, "__dict__").items() if item[0] != "_cache"]
        return (
            qualname(type(value)),
            [(key, self._part(graph, part, covered=covered)) for key, part in parts],
        )

    def _categories(self, graph: ObjectGraph, value: Any) -> object:
        return graph.tokens((value._categories, value._ordered))

    def _moment(self, graph: ObjectGraph, value: Any) -> object:
        zone = getattr(value, "tzinfo", None)
        return (value._value, value.unit, None if zone is None else graph.token(zone))

    def _offset(self, graph: ObjectGraph, value: Any) -> object:
        """Its text does not say which days are left out. Its calendar is made of the rest."""
        told = {key: repr(item) for key, item in value.kwds.items() if key != "calendar"}
        return (repr(value), value.n, value.normalize, told, graph.token(type(value)))

    def _text(self, _graph: ObjectGraph, value: object) -> object:
        return repr(value)

    def _constant(self, _graph: ObjectGraph, _value: object) -> object:
        return None


def _is_accessor(value: object) -> bool:
    """Whether it is an accessor of pandas, which is made on first use, and shows the frame."""
    return module_of(type(value)).startswith("pandas.")


def _is_of_class(cls: type, key: str, value: object) -> bool:
    """Whether pandas' class has the same value for all its frames, such as `_typ`, which unpickled frames have
    themselves."""
    if type(value) is not str:
        return False
    said = (attributes(base).get(key) for base in mro(cls) if module_of(base).partition(".")[0] == "pandas")
    return any(type(each) is str and each == value for each in said)


def _named(graph: ObjectGraph, index: Any) -> None:
    """Marks an index. Only its names and its frequency can change, which all frames that have it show. Few steps set
    them, so a common index does not join two frames into a group."""
    (graph.changeable if index is graph.root else graph.cover)(index)


def arrow_handlers(pyarrow: ModuleType) -> dict[type, Handler]:
    """Handlers for exact types of an imported Arrow. Its memory never changes, unless it is also an array's."""
    found: dict[type, Handler] = {
        pyarrow.ChunkedArray: _chunked, pyarrow.Table: _table, pyarrow.RecordBatch: _table, pyarrow.Buffer: _buffer,
        pyarrow.Schema: _spelled,
    }  # fmt: skip
    for cls in vars(pyarrow.lib).values():
        if isinstance(cls, type):
            if pyarrow.Array in mro(cls):
                found[cls] = _arrow_array
            elif pyarrow.DataType in mro(cls) or pyarrow.Scalar in mro(cls):
                found[cls] = _spelled
    return {cls: _noted(handler) for cls, handler in found.items()}


def _noted(handler: Handler) -> Handler:
    """Adds the library, which makes objects of others."""

    def described(graph: ObjectGraph, value: Any) -> object:
        graph.packages.add("pyarrow")
        return handler(graph, value)

    return described


def _is_chunked(value: object) -> bool:
    return module_of(type(value)).startswith("pyarrow") and type(value).__name__ == "ChunkedArray"


def _combined(graph: ObjectGraph, value: Any) -> object:
    """In one piece, as pandas pickles it: the number of chunks does not show in a frame."""
    if value.num_chunks == 1:
        return _chunked(graph, value)
    for chunk in value.chunks:
        _show(graph, chunk)
    if not graph.budget.has_room(value.nbytes):
        graph.unknown(TOO_LARGE)
        return None
    whole = value.combine_chunks()  # still in pieces if they are too large for one
    pieces = whole.chunks if _is_chunked(whole) else [whole]
    return (str(value.type), [_arrow_content(graph, piece) for piece in pieces])


def _chunked(graph: ObjectGraph, value: Any) -> object:
    return (str(value.type), [_arrow_array(graph, chunk) for chunk in value.chunks])


def _table(graph: ObjectGraph, value: Any) -> object:
    return (str(value.schema), [graph.token(column) for column in value.columns])


def _arrow_array(graph: ObjectGraph, value: Any) -> object:
    _show(graph, value)
    return _arrow_content(graph, value)


def _show(graph: ObjectGraph, value: Any) -> None:
    parts = value.buffers()
    if len(parts) == 2:  # of numbers; strings are copied
        graph.shown += [(part.address, part.address + part.size) for part in parts if part is not None]
    if "dictionary" in attributes(type(value)):
        _show(graph, value.dictionary)


def _arrow_content(graph: ObjectGraph, value: Any) -> object:
    parts = value.buffers()
    if value.null_count == 0:  # a validity bitmap may or may not be there if all values are valid
        parts[0] = None
    buffers = [None if part is None else graph.memory(part, part.size) for part in parts]
    inner = _arrow_content(graph, value.dictionary) if "dictionary" in attributes(type(value)) else None
    return (str(value.type), len(value), value.offset, buffers, inner)


def _buffer(graph: ObjectGraph, value: Any) -> object:
    graph.shown.append((value.address, value.address + value.size))
    graph.blind = graph.blind or value.is_mutable
    return graph.memory(value, value.size)


def _spelled(_graph: ObjectGraph, value: object) -> object:
    return str(value)
