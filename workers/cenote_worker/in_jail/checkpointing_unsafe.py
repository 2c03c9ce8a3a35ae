"""A namespace's values as pickles that a fresh namespace can take over.

Other than `transfer_unsafe`, which sends a value elsewhere, this keeps what holds a namespace together: functions go
on looking names up in it, closures share their cells, views of an array go on sharing its memory. What would come
back as something else (an open file as its text) is refused, so that it is rebuilt by running code again.

The layout of functions follows CPython's own `types.FunctionType`; classes are reduced by cloudpickle.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import importlib
import io
import pickle
import re
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import cloudpickle

from cenote_worker.code_versions import reduced_code
from cenote_worker.in_jail.array_views import copied_from, lies_in_file, over_memory, plain_bytes_of, view_of
from cenote_worker.in_jail.cached_functions import CACHED, reduced_cache, reduced_property
from cenote_worker.in_jail.compiled_schemas import reduced_schema
from cenote_worker.in_jail.exceptions_kept import reduced_exception
from cenote_worker.in_jail.leftovers import reduced_leftover
from cenote_worker.in_jail.rows import reduced_row
from cenote_worker.late_types_unsafe import class_of_table, reduced_late_type
from cenote_worker.pickled_unsafe import OUT_OF_BAND, setting_aside
from cenote_worker.tensors_unsafe import TensorNotKeptError, reduced_tensor

_TABLES: tuple[Any, ...] = ({}, {}.values(), {}.items())
_OVER_TABLES = {type(iter(each)) for each in (*_TABLES, *map(reversed, _TABLES), set(), OrderedDict())}
_FILES = (io.TextIOWrapper, io.BufferedIOBase, io.RawIOBase)
_CLASS_TRACKER = re.compile(r"[0-9a-f]{32}").fullmatch
_LANDING = "Landing."
_BASES, _BODY = 2, 3
"""Which arguments of cloudpickle's skeleton of a class are its bases, and the body that it is made with."""

_SENTINELS = {
    id(value): name
    for name, value in vars(dataclasses).items()
    if type(value).__module__ == "dataclasses" and not isinstance(value, type)
}
"""Objects that dataclasses compare by identity."""


class NotKept(TypeError):
    """A value that cannot be stored faithfully; the text says why."""


class StatePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes one group of values. After `dump`, `memo` holds every object that it met: who shares what."""

    def __init__(
        self,
        stream: io.BytesIO,
        buffers: list[memoryview],
        namespace: Mapping[str, object],
        anchors: Anchors,
        *,
        owned: int = 0,
    ) -> None:
        """owned: bytes of arrays that are copied into memory of their own; the others will be views of what they are
        stored in, which can neither be resized nor say that they own it."""
        super().__init__(stream, protocol=5, buffer_callback=setting_aside(buffers))
        self._namespace = namespace
        self._anchors = anchors
        self._bare: set[int] = set()
        self._owned = owned

    def dump(self, obj: Any) -> Any:
        """Raises NotKept for a container that a library has: those are always pickled by their content."""
        done = super().dump(obj)
        if any(kind == "library" for kind, _ in self._anchors.values()):
            met = self.memo.copy()
            if any(type(met[each][1]) in (dict, list, set) for each in met.keys() & self._anchors.keys()):
                raise NotKept("it is, or holds, a container that a library has")
        return done

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is types.FunctionType and id(obj) not in self._anchors:
            if obj.__globals__ is self._namespace:
                return self._function(obj, ())
            if home := _maker(obj):
                return self._function(obj, (home,))
        if kind is types.CellType:
            return self._cell(obj)
        if kind is types.CodeType:
            return reduced_code(obj)
        if id(obj) in self._anchors:
            return Landing.anchor, self._anchors[id(obj)]
        if kind is CACHED and (
            obj.__module__ == "__main__" or obj.__wrapped__.__globals__ is self._namespace
        ):
            if (cached := reduced_cache(obj, self._namespace)) is not None:
                return cached
            # By itself it would be stored as a name, to be looked up in a module that is not filled yet.
            raise NotKept("a cache of functools holds results that cannot be read out of it")
        if kind is functools.cached_property:
            return reduced_property(obj)
        if kind is types.MappingProxyType and "__module__" in obj and "__doc__" in obj:
            raise NotKept("the table of a class would come back as a copy")
        if (leftover := reduced_leftover(obj)) is not None:
            return leftover
        if (row := reduced_row(obj)) is not None:
            return row
        if isinstance(obj, _FILES) and kind is not io.BytesIO:
            raise NotKept("an open file cannot be stored")
        if kind in _OVER_TABLES:
            raise NotKept("an iterator over a table would come back as one over a copy")
        if isinstance(obj, BaseException) and (exception := reduced_exception(obj)) is not None:
            return exception
        if kind is memoryview:
            raise NotKept("a memoryview would come back as a copy")
        if lies_in_file(obj):
            raise NotKept("an array that lies in a file would come back as a copy")
        if (view := view_of(obj)) is not None:
            return over_memory, view
        if (array := self._array(obj)) is not None:
            return array
        if id(obj) in _SENTINELS:
            return getattr, (dataclasses, _SENTINELS[id(obj)])
        if (schema := reduced_schema(obj)) is not None:
            return schema
        if (tensor := self._tensor(obj)) is not None:
            return tensor
        if kind.__module__[:8] == "sklearn.":
            return _bunch(obj) if isinstance(obj, dict) else _of_sklearn(obj)
        if kind is _Nan:
            return getattr, (importlib.import_module("numpy"), "nan")
        if (late := reduced_late_type(obj)) is not None:
            return late
        reduced = super().reducer_override(obj)
        return _as_it_was(obj, reduced) if isinstance(obj, type) else reduced

    def _function(self, function: types.FunctionType, home: tuple[str, ...]) -> Any:
        """Its cells are filled afterwards: they may hold the function itself. home: see Landing.function."""
        cells = function.__closure__ or ()
        to_fill = [cell for cell in cells if class_of_table(cell) is None]
        self._bare.update(map(id, to_fill))
        state = (
            vars(function),
            function.__defaults__,
            function.__kwdefaults__,
            function.__annotations__,
            (function.__qualname__, function.__module__, function.__doc__, *_type_parameters(function)),
            tuple((cell, *_contents(cell)) for cell in to_fill),
        )
        made = (function.__code__, function.__name__, cells or None, *home)
        return Landing.function, made, state, None, None, Landing.fill_function

    @staticmethod
    def _tensor(value: Any) -> tuple[Any, ...] | None:
        try:
            return reduced_tensor(value)
        except TensorNotKeptError as error:
            raise NotKept(str(error)) from None

    def _array(self, value: Any) -> tuple[Any, ...] | None:
        """An array that owns its memory, to be one again. numpy itself would make a view of what it is stored in."""
        flat = plain_bytes_of(value)
        if flat is None:
            return None
        make = copied_from
        if flat.nbytes >= OUT_OF_BAND:
            make = copied_from if flat.nbytes <= self._owned else over_memory
            self._owned -= flat.nbytes if make is copied_from else 0
        return make, (
            pickle.PickleBuffer(flat),
            0,
            value.shape,
            value.strides,
            value.dtype,
            value.flags.writeable,
        )

    def _cell(self, cell: types.CellType) -> Any:
        if id(cell) in self._bare:
            return types.CellType, ()
        if (table := reduced_late_type(cell)) is not None:
            return table
        return types.CellType, (), _contents(cell), None, None, Landing.fill_cell


Anchors = Mapping[int, tuple[str, str]]
"""Objects of a process that stand for the same thing in every process of Cenote, by identity; see Landing.anchor."""


class Landing:
    """What a stored state is rebuilt with, in the namespace that is being filled."""

    def __init__(self, namespace: dict[str, object], anchors: Callable[[str, str], object]) -> None:
        """anchors: the object of this process that a kind and a name stand for. Raises KeyError."""
        self._namespace = namespace
        self._anchors = anchors

    def anchor(self, kind: str, name: str) -> object:
        """An object that every process has, such as a stub of a host function."""
        try:
            return self._anchors(kind, name)
        except KeyError:
            raise LookupError(f"{name!r} of the client is not offered any more") from None

    def function(
        self, code: types.CodeType, name: str, cells: tuple[types.CellType, ...] | None, home: str = ""
    ) -> types.FunctionType:
        """home: the module that the function looks names up in; empty for the namespace."""
        table = vars(importlib.import_module(home)) if home else self._namespace
        return types.FunctionType(code, table, name, None, cells)

    def fill_function(self, function: types.FunctionType, state: Any) -> None:
        attributes, defaults, keyword_defaults, annotations, (qualname, module, doc, *parameters), cells = (
            state
        )
        vars(function).update(attributes)
        function.__defaults__, function.__kwdefaults__ = defaults, keyword_defaults
        function.__annotations__ = annotations
        function.__qualname__, function.__module__, function.__doc__ = qualname, module, doc
        if parameters:
            setattr(function, "__type_params__", tuple(parameters))  # noqa: B010  (there from Python 3.12 on)
        for cell, *contents in cells:
            self.fill_cell(cell, contents)

    def fill_cell(self, cell: types.CellType, contents: Any) -> None:
        if contents:
            cell.cell_contents = contents[0]


class StateUnpickler(pickle.Unpickler):
    """Reads one group into the landing's namespace."""

    def __init__(self, parts: list[memoryview], landing: Landing) -> None:
        stream, *buffers = parts
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._landing = landing

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name.startswith(_LANDING):
            return getattr(self._landing, name.removeprefix(_LANDING))
        return super().find_class(module, name)


def load(parts: list[memoryview], landing: Landing) -> Any:
    """What was stored, in a jail; its buffers are this process's private pages. Raises whatever its code raises."""
    return StateUnpickler(parts, landing).load()


def dump_process(
    state: dict[str, object], settings: Mapping[str, bytes], sources: Mapping[str, object]
) -> list[memoryview]:
    """Plain values and what the standard library and numpy make of them. Settings and sources are parts of their own:
    they stay what they are, or only grow, while random numbers are drawn.
    """
    parts = {"settings": dict(settings), "sources": list(sources.items())}
    apart = {key: pickle.PickleBuffer(pickle.dumps(part, protocol=5)) for key, part in parts.items()}
    buffers = list[memoryview]()
    stream = pickle.dumps(
        {**state, **apart}, protocol=5, buffer_callback=lambda each: buffers.append(each.raw())
    )
    return [memoryview(stream), *buffers]


def dump_settings(settings: Mapping[str, object]) -> dict[str, bytes]:
    """Each by itself. One with a function or a class of the user's is left out: it is the namespace's, too."""
    found = dict[str, bytes]()
    for state, value in settings.items():
        with suppress(Exception):
            data = pickle.dumps(value, protocol=5)
            if b"__main__" not in data:
                found[state] = data
    return found


def load_sources(process: Mapping[str, Any]) -> dict[str, Any]:
    """Of a stored process; empty for one that has none."""
    return dict(pickle.loads(process["sources"])) if "sources" in process else {}


def load_settings(process: Mapping[str, Any]) -> dict[str, object]:
    """Of a stored process; empty for one that has none. What cannot be read here is left out."""
    found = dict[str, object]()
    stored = pickle.loads(process["settings"]) if "settings" in process else {}
    for state, data in stored.items():
        with suppress(Exception):
            found[state] = pickle.loads(data)
    return found


def _contents(cell: types.CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _bunch(value: Any) -> Any:
    """A data set of scikit-learn, whose own `__setstate__` drops the attributes that all others of it have."""
    items = iter(value.items())
    return copyreg.__newobj__, (type(value),), vars(value), None, items, _with_attributes  # type: ignore[attr-defined]


class _Nan:
    """Stands for numpy's NaN, which pickle takes for a number like any other, and programs ask for by `is`."""


_NAN = _Nan()


def _of_sklearn(value: Any) -> Any:
    """Many of its estimators have that NaN for a default."""
    numpy = sys.modules.get("numpy")
    reduced = value.__reduce_ex__(5)
    if numpy is None or not isinstance(reduced, tuple) or len(reduced) < 3:
        return reduced
    make, arguments, state, *rest = reduced
    if isinstance(state, dict) and any(item is numpy.nan for item in state.values()):
        state = {key: _NAN if item is numpy.nan else item for key, item in state.items()}
    return make, arguments, state, *rest


def _with_attributes(value: Any, attributes: dict[str, Any]) -> None:
    vars(value).update(attributes)


def _type_parameters(function: types.FunctionType) -> tuple[object, ...]:
    parameters: tuple[object, ...] = getattr(function, "__type_params__", ())
    return parameters


def _maker(function: types.FunctionType) -> str:
    """The library whose code has made a function, as decorators do; empty for one that is found there by name.

    cloudpickle would give it copies of the library's globals.
    """
    home = function.__globals__.get("__name__")
    module = sys.modules.get(home) if isinstance(home, str) else None
    if module is None or vars(module) is not function.__globals__:
        return ""
    found: object = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return str(home) if found is not function or function.__module__ == "__main__" else ""


def _as_it_was(cls: type, reduced: Any) -> Any:
    """How cloudpickle reduces a class, but with the slots that it was made with, its attributes in their order, and
    without its number.

    cloudpickle numbers classes at random, to know them again. Here an equal state has equal bytes.
    """
    if not isinstance(reduced, tuple):
        return reduced
    make, arguments, *rest = reduced
    plain: list[Any] = [
        None if isinstance(each, str) and _CLASS_TRACKER(each) else each for each in arguments
    ]
    body = vars(cls)
    if (
        type(cls) is type and "__orig_bases__" in body
    ):  # with these, `NamedTuple` would make another class out of it
        plain[_BASES] = cls.__bases__
        plain[_BODY] = plain[_BODY] | {"__orig_bases__": body["__orig_bases__"]}
    if "__slots__" in body and isinstance(plain[_BODY], dict):
        plain[_BODY] = plain[_BODY] | {"__slots__": body["__slots__"]}
    if rest:  # none of a type of the library
        (attributes, slots), *rest = rest
        rest = [(_in_order(attributes, body), slots), *rest]
        if make is cloudpickle.cloudpickle._make_skeleton_class:
            rest[3:] = [_filled]
    return make, tuple(plain), *rest


def _filled(cls: type, state: Any) -> Any:
    """A base class may have set attributes on it when it was made, which come in their order with the others."""
    attributes, _ = state
    for key in attributes.keys() & vars(cls).keys():
        if key[:2] != "__":
            delattr(cls, key)
    return cloudpickle.cloudpickle._class_setstate(cls, state)


def _in_order(attributes: Mapping[str, object], body: Mapping[str, object]) -> dict[str, object]:
    """As a class has them; without what `copyreg` has noted there for itself."""
    order = {key: place for place, key in enumerate(body)}
    own = [item for item in attributes.items() if item[0] != "__slotnames__"]
    return dict(sorted(own, key=lambda item: order.get(item[0], len(order))))
