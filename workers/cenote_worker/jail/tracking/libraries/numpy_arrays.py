"""numpy's objects as descriptions: the memory that they share, and a digest of the part that they show."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from cenote_worker.jail.tracking.budget import TOO_LARGE
from cenote_worker.jail.tracking.descriptions.classes import attributes, module_of, mro
from cenote_worker.jail.tracking.descriptions.graph import Handler, ObjectGraph
from cenote_worker.jail.tracking.descriptions.known_digests import pages_of
from cenote_worker.jail.tracking.descriptions.objects import held_by
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

if TYPE_CHECKING:
    import numpy as np


_MASKED: Final = frozenset(("numpy.ma", "numpy.ma.core"))


def handlers(numpy: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported numpy."""
    found: dict[type, Handler] = {numpy.ndarray: array}
    for scalar in set(numpy.sctypeDict.values()):
        found[scalar] = _scalar
    found[numpy.bool_] = _scalar
    found[numpy.void] = _void
    for cls in vars(numpy.dtypes).values():
        if isinstance(cls, type):
            found[cls] = _dtype
    found[numpy.ufunc] = _universal
    found[numpy.flatiter] = _flat
    found[numpy.random.Generator] = _generator
    found[numpy.random.RandomState] = _legacy
    found[numpy.random.SeedSequence] = _seeds
    for cls in vars(numpy.random).values():
        if isinstance(cls, type) and numpy.random.BitGenerator in mro(cls)[1:]:
            found[cls] = _bits
    return found


def derived(graph: ObjectGraph, value: np.ndarray[Any, Any]) -> object:
    """Describes an array of a derived class: its memory, which is often another array's, and its other state."""
    cls = type(value)
    graph.packages.add(module_of(cls).partition(".")[0])
    table = _table(value)
    numpys = _base_of(cls)
    plain: np.ndarray[Any, Any] = numpys.view(value, numpys)  # not by a method of the user's
    return (
        graph.token(cls),
        array(graph, plain, itself=value),
        _attributes(graph, value, table) if table is not None else None,
    )


def _attributes(graph: ObjectGraph, value: Any, table: dict[str, object]) -> object:
    """A masked array computes its fill value when that is first requested, so a usual one is left out."""
    filling = table.get("_fill_value", graph)
    if module_of(type(value)) not in _MASKED or filling is graph or not _is_filled_as_usual(value, filling):
        return graph.inline(table)
    graph.changeable(table)
    return ("masked", graph.mapping({key: item for key, item in table.items() if key != "_fill_value"}))


def _is_filled_as_usual(value: Any, filling: Any) -> bool:
    if filling is None:
        return True
    usual = sys.modules["numpy.ma.core"]._check_fill_value(None, value.dtype)
    if (type(filling), filling.dtype, filling.shape) != (type(usual), usual.dtype, usual.shape):
        return False
    return bool(
        filling.item() == usual.item() if usual.dtype.hasobject else filling.tobytes() == usual.tobytes()
    )


def _base_of(cls: type) -> Any:
    """numpy's own array class."""
    return mro(cls)[-2]


def _table(value: object) -> dict[str, object] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def array(
    graph: ObjectGraph,
    value: np.ndarray[Any, Any],
    *,
    covered: bool = False,
    itself: np.ndarray[Any, Any] | None = None,
) -> object:
    """covered: the holder of the memory copies it before a change, so others never see the change. itself: the array
    of which `value` is a view made here."""
    owner, base = _owner(value)
    (graph.cover if covered else graph.changeable)(owner)
    start = owner.__array_interface__["data"][0]
    graph.owned[id(owner)] = start, start + owner.nbytes
    if not covered:
        graph.changeable(value if itself is None else itself)
    held = None if base is None or _only_shows(graph, value, base) else graph.token(base)
    if base is not None and _tells_addresses(base):
        graph.shown.append((start, start + owner.nbytes))
    offset = value.__array_interface__["data"][0] - start
    graph.packages.add("numpy")  # its settings determine how it prints and computes
    place = graph.place(owner), offset, _steps(value), value.flags.writeable
    return (_spelled(graph, value.dtype), value.shape, place, held, _data(graph, value, owner))


def _only_shows(graph: ObjectGraph, value: np.ndarray[Any, Any], base: object) -> bool:
    """Whether it is a view of read-only memory of Arrow, which is recorded: pandas has such columns."""
    of_arrow = module_of(type(base)).startswith("pyarrow.") and type(base).__name__.endswith("Array")
    if not of_arrow or value.flags.writeable:
        return False
    start = value.__array_interface__["data"][0]
    graph.shown.append((start, start + value.nbytes))
    return True


def _steps(value: np.ndarray[Any, Any]) -> list[int]:
    """Strides, except those of axes of length one, for which numpy stores arbitrary values."""
    if not value.size:
        return []
    return [stride if length > 1 else 0 for length, stride in zip(value.shape, value.strides, strict=True)]


def _tells_addresses(base: object) -> bool:
    """Whether only the address of the memory is known. Objects of numpy itself refer to the array."""
    has = any("__array_interface__" in attributes(cls) for cls in mro(type(base)))
    has = has or "__array_interface__" in (_table(base) or ())
    return has and not module_of(type(base)).startswith("numpy.")


def _owner(value: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], object]:
    """The array that owns the memory, and the other object that the memory belongs to."""
    owner = value
    base: Any = value.base
    while base is not None and _base_of(type(value)) in mro(type(base)):
        owner, base = base, base.base
    if pages_of(owner) is not None:
        base = None  # it came from another process, and has owned its memory since
    return owner, base


def _spelled(graph: ObjectGraph, dtype: np.dtype[Any]) -> object:
    """Describes a dtype with its user metadata, which may be anything. Only names of fields can be set."""
    if dtype.names is not None:
        graph.cover(dtype)
    spelled = dtype.str if dtype.names is None else str(dtype.descr)
    return spelled if dtype.metadata is None else (spelled, graph.mapping(dict(dtype.metadata)))


def _data(graph: ObjectGraph, value: np.ndarray[Any, Any], owner: np.ndarray[Any, Any]) -> object:
    kind = value.dtype.kind
    if value.dtype.hasobject or kind == "T":
        items = value.reshape(-1).tolist()
        if value.dtype.names is not None:
            graph.unknown("an array of records with objects")
            items = [item for record in items for item in record]
        return graph.sequence(items, plain=True)
    if value.flags.c_contiguous:
        flat = value.reshape(-1)
    elif value.flags.f_contiguous:
        flat = value.T.reshape(-1)
    elif graph.budget.has_room(value.nbytes):
        return graph.memory(_bytes(value.flatten()), value.nbytes)
    else:
        graph.unknown(TOO_LARGE)
        return None
    return graph.memory(_bytes(flat), value.nbytes, owner)


def _bytes(flat: np.ndarray[Any, Any]) -> Any:
    return flat.view("V1").view("u1") if flat.nbytes else b""


def _scalar(graph: ObjectGraph, value: np.generic) -> object:
    graph.packages.add("numpy")
    return (value.dtype.str, value.tobytes())


def _void(graph: ObjectGraph, value: np.void) -> object:
    graph.changeable(value)
    if value.dtype.hasobject or value.base is not None:
        return graph.follow(value)
    return (_spelled(graph, value.dtype), value.tobytes())


def _dtype(graph: ObjectGraph, value: np.dtype[Any]) -> object:
    return _spelled(graph, value)


def _universal(graph: ObjectGraph, value: np.ufunc) -> object:
    """A ufunc made from a function holds that function."""
    return (value.__name__, graph.tokens(held_by(value)))


def _flat(graph: ObjectGraph, value: np.flatiter[Any]) -> object:
    graph.changeable(value)
    return (graph.token(value.base), value.index)


def _generator(graph: ObjectGraph, value: np.random.Generator) -> object:
    graph.changeable(value)
    return graph.token(value.bit_generator)


def _bits(graph: ObjectGraph, value: np.random.BitGenerator) -> object:
    graph.changeable(value)
    return (graph.token(value.seed_seq), _state(graph, value.state))


def _seeds(graph: ObjectGraph, value: np.random.SeedSequence) -> object:
    """The state from which the next generators are spawned."""
    graph.changeable(value)
    return graph.tokens((value.entropy, value.spawn_key, value.pool_size, value.n_children_spawned))


def _legacy(graph: ObjectGraph, value: np.random.RandomState) -> object:
    graph.packages.add("numpy.random")  # the shared one, or one like it
    graph.changeable(value)
    return (graph.token(value._bit_generator), _state(graph, value.get_state(legacy=False)))


def _state(graph: ObjectGraph, state: Any) -> object:
    """A dictionary of numbers, arrays and more such dictionaries, made for this call."""
    return [
        (
            key,
            _state(graph, item)
            if type(item) is dict
            else item.tobytes()
            if hasattr(item, "tobytes")
            else item,
        )
        for key, item in state.items()
    ]
