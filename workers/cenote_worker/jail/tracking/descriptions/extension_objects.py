"""Objects of libraries' C code as descriptions: by the content of their pickles, or by an identity token.

A tree of scikit-learn, a loss, an interval of pandas have their content in memory of their own, which none of their
references shows. What they give to `pickle` is made of numbers, arrays and similar objects, and is made anew for each
call; so it is described at once, and nothing of it counts as held. The objects that they do hold may be a user's.
Pydantic's compiled schemas never change, and are determined by their source. Objects that never change and don't show
what they hold get a token each, for their lifetime.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from types import BuiltinFunctionType, ModuleType
from typing import Any, Final

from cenote_worker.jail.tracking.descriptions.classes import module_of, mro, qualname
from cenote_worker.jail.tracking.descriptions.graph import ATOMS, Handler, ObjectGraph
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_random: Final = os.urandom


class IdentityTokens:
    """One token per object, unique across all forks of the process."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[object], int, str]] = {}

    def of(self, holder: object, held: object) -> str:
        """holder: can be weakly referenced, and has `held`, which cannot."""
        known = self._known.get(id(holder))
        if known is not None and known[0]() is holder and known[1] == id(held):
            return known[2]
        stamp, key, table = _random(8).hex(), id(holder), self._known
        self._known[key] = weakref.ref(holder, lambda _: table.pop(key, None)), id(held), stamp
        return stamp

    def holders(self) -> list[object]:
        """All objects that have a token and are alive."""
        return [holder for known, _, _ in list(self._known.values()) if (holder := known()) is not None]


LIBRARIES: Final = frozenset(("sklearn", "scipy", "pandas"))
"""Libraries whose pickles describe such an object completely."""

_DEPTH: Final = 8
_ITEMS: Final = 10_000
"""Limits on what an object gives to `pickle`: deeper or longer data is not looked at."""

_CONTAINERS: Final = (tuple, list)
_referents = gc.get_referents


class _UnseenError(Exception):
    """It holds something that is not plain data."""


def description(graph: ObjectGraph, value: Any) -> object | None:
    """The description of an object of one of these libraries; None if its pickle does not describe it."""
    if module_of(type(value)).partition(".")[0] not in LIBRARIES:
        return None
    shown = list[tuple[int, int]]()
    try:
        said = _Plain(graph, shown).of(value, _DEPTH)
    except Exception:  # it has no pickle, or a library has been changed
        return None
    held = [each for each in _referents(value) if _is_array(each)]
    graph.changeable(value)
    graph.packages.add(module_of(type(value)).partition(".")[0])
    graph.shown += shown
    return (said, graph.tokens(held))


class _Plain:
    """shown: address ranges of memory that such objects refer to, and that may be a user's array's."""

    def __init__(self, graph: ObjectGraph, shown: list[tuple[int, int]]) -> None:
        self._graph = graph
        self._shown = shown
        self._array_type = _array_type()
        self._items = _ITEMS

    def of(self, value: Any, depth: int) -> object:
        """Raises _UnseenError, and any error that pickling raises."""
        cls = type(value)
        if cls in ATOMS:
            return repr(value) if cls is float or cls is complex else value
        self._items -= 1
        if not depth or not self._items:
            raise _UnseenError
        if cls in _CONTAINERS:
            return [cls.__name__, *(self.of(each, depth - 1) for each in value)]
        if cls is dict:
            return ["dict", *(self.of(each, depth - 1) for item in value.items() for each in item)]
        if cls is self._array_type:
            return self._array(value)
        if _is_scalar(value):
            return [value.dtype.str, value.tobytes()]
        if (
            isinstance(value, type)
            or cls is BuiltinFunctionType
            or cls.__name__ == "cython_function_or_method"
        ):
            return _library_name(value)
        if module_of(cls).partition(".")[0] not in LIBRARIES:
            raise _UnseenError
        if any(not _is_seen(each) for each in _referents(value)):
            raise _UnseenError
        made, arguments, *state = value.__reduce_ex__(4)
        name = made.__name__ if made.__name__ in ("__newobj__", "newObj") else _library_name(made)
        return [qualname(cls), name, self.of(arguments, depth - 1), self.of(state, depth - 1)]

    def _array(self, value: Any) -> object:
        dtype = value.dtype
        if dtype.hasobject or dtype.kind == "T":
            raise _UnseenError
        if value.base is not None:
            start = value.ctypes.data  # `__array_interface__` would spell the dtype as well
            self._shown.append((start, start + value.nbytes))
        # By field: the padding between them is not part of the value.
        parts = [value] if dtype.names is None else [value[each] for each in dtype.names]
        digests = [self._graph.memory(each.tobytes(), each.nbytes) for each in parts]
        return [_spelled(dtype), value.shape, digests]


_spellings: dict[int, tuple[Any, tuple[str, ...] | None, str]] = {}
_MANY_DTYPES: Final = 256


def _spelled(dtype: Any) -> str:
    """`str(dtype)`, which takes longer than to hash a small array of records. Names of fields can be set:
    of records in records it is not known."""
    known = _spellings.get(id(dtype))
    if known is not None and known[0] is dtype and known[1] == dtype.names:
        return known[2]
    if dtype.names is not None and any(field[0].names is not None for field in dtype.fields.values()):
        return str(dtype)
    if len(_spellings) >= _MANY_DTYPES:
        _spellings.clear()
    spelled = str(dtype)
    _spellings[id(dtype)] = dtype, dtype.names, spelled
    return spelled


def _array_type() -> type | None:
    found: type | None = getattr(sys.modules.get("numpy"), "ndarray", None)
    return found


def _is_array(value: object) -> bool:
    return type(value) is _array_type()


def _is_scalar(value: object) -> bool:
    generic = getattr(sys.modules.get("numpy"), "generic", None)
    return generic is not None and generic in mro(type(value)) and module_of(type(value)) == "numpy"


def _is_seen(held: object) -> bool:
    """Whether it is data, or an object of the same libraries, which is described by its pickle."""
    cls = type(held)
    home = module_of(cls).partition(".")[0]
    return cls in ATOMS or _is_array(held) or isinstance(held, type) or home in LIBRARIES or home == "numpy"


def _library_name(value: Any) -> str:
    home, name = str(value.__module__), str(value.__qualname__)
    if home.partition(".")[0] not in LIBRARIES | {"numpy", "copyreg", "builtins"} or "<locals>" in name:
        raise _UnseenError
    return f"{home}.{name}"


def handlers(pydantic_core: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported core of pydantic."""
    return dict.fromkeys((pydantic_core.SchemaValidator, pydantic_core.SchemaSerializer), _compiled)


def _compiled(graph: ObjectGraph, value: Any) -> object:
    _, made_of, *_ = value.__reduce__()
    return graph.tokens(made_of)
