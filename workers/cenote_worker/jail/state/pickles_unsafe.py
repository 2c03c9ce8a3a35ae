"""A namespace's values as pickles that a fresh namespace can take over.

Unlike `transfer_unsafe`, which sends a value elsewhere, this preserves what holds a namespace together: functions
still look names up in it, closures share their cells, views of an array share its memory. A value that would come
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
import struct
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import cloudpickle

from cenote_security.former_names import MOVED
from cenote_worker.jail.libraries.numpy_views import (
    copied_from,
    derived,
    derived_view,
    lies_in_file,
    number,
    number_within,
    over_memory,
    owned_view,
    plain_bytes_of,
    record,
    record_within,
    view_of,
)
from cenote_worker.jail.libraries.pandas_indexes import Place, Places, rebuilt, share, sharing
from cenote_worker.jail.libraries.pydantic_schemas import reduced_schema
from cenote_worker.jail.state.stale_keys_unsafe import KeysNotKeptError, fill, stale_tables
from cenote_worker.jail.values.instance_pickles import (
    InstanceReducers,
    fill_bare,
    fill_own,
    held_by,
    is_known,
    own_object,
    own_objects,
    reduced_exception,
)
from cenote_worker.jail.values.pickle_reducers import (
    CACHED,
    reduced_cache,
    reduced_leftover,
    reduced_property,
    reduced_row,
)
from cenote_worker.pickling.buffers_unsafe import OUT_OF_BAND, setting_aside
from cenote_worker.pickling.classes_unsafe import class_of_table, reduced_class, reduced_late_type
from cenote_worker.pickling.code_objects import reduced_code
from cenote_worker.pickling.tensors_unsafe import TensorNotKeptError, reduced_tensor
from cenote_worker.process.pristine import BUILTINS, own_builtins

__builtins__ = BUILTINS

_TABLES: tuple[Any, ...] = ({}, {}.values(), {}.items())
_OVER_TABLES = {type(iter(each)) for each in (*_TABLES, *map(reversed, _TABLES), set(), OrderedDict())}
_FILES = (io.TextIOWrapper, io.BufferedIOBase, io.RawIOBase)
_LANDING = "Landing."
_CONTAINERS = frozenset((dict, list, set))
_HOMES_OF_NAN = ("numpy", "math")
_NANS = (b"G\x7f\xf8", b"G\xff\xf8")
"""The beginning of a NaN in a pickle."""

_MOST_ASKED = 20
"""Classes that are asked in turn how they are pickled, each in another attempt."""

_SENTINELS = {
    id(value): name
    for name, value in vars(dataclasses).items()
    if type(value).__module__ == "dataclasses" and not isinstance(value, type)
}
"""Objects that dataclasses compare by identity."""


class NotKept(TypeError):
    """A value that cannot be stored faithfully; the text says why."""


class StatePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes one group of values. After `dump`, `memo` holds every object that it met, which shows the sharing."""

    def __init__(
        self,
        stream: io.BytesIO,
        buffers: list[memoryview],
        namespace: Mapping[str, object],
        anchors: Anchors,
        *,
        owned: int = 0,
        axes: Places | None = None,
        asked: Collection[type] = (),
        trial: bool = False,
        own: OwnObjects | None = None,
    ) -> None:
        """owned: bytes of arrays that are copied into memory of their own; the others will be views of the stored
        memory, which cannot be resized and do not own it. axes: indexes of variables that do not come along. asked:
        see InstanceReducers. trial: only finds out whether a value can be pickled."""
        super().__init__(stream, protocol=5, buffer_callback=setting_aside(buffers))
        self._namespace = namespace
        self._anchors = anchors
        self._bare: set[int] = set()
        self._owned = owned
        self._axes = axes or {}
        self._ordinary = set[type]()
        """Classes whose instances pickle handles itself."""
        self._own_objects: OwnObjects = {} if own is None else own
        self._own_memory: set[int] = set()
        """Plain arrays over memory that an array of a derived class owns; that array is made as a view of the plain
        one."""
        self._asked = asked
        self.instances = InstanceReducers(asked, (lambda _: False) if trial else self._can)

    def met(self) -> dict[int, tuple[int, object]]:
        """Every object that it met, by identity."""
        return self.memo.copy()  # type: ignore[no-any-return]

    def _can(self, value: object) -> bool:
        stream = io.BytesIO()
        given = self._namespace, self._anchors
        axes, own, asked = self._axes, self._own_objects, self._asked
        trial = type(self)(stream, [], *given, axes=axes, asked=asked, trial=True, own=own)
        try:
            trial.dump(value)
        except Exception:
            return False
        return True

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in self._ordinary and id(obj) not in self._anchors:
            return NotImplemented
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
        if id(obj) in self._axes:
            return Landing.axis, (self._axes[id(obj)], *obj.__reduce__())
        if (own := self._of_library(obj)) is not None:
            return own
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
        if (view := owned_view(obj) if id(obj) in self._own_memory else view_of(obj)) is not None:
            return over_memory, view
        if (lying := derived_view(obj)) is not None:
            (memory, *where), is_own = lying
            if is_own:
                self._own_memory.add(id(memory))
            return derived, (kind, memory, *where), held_by(obj), None, None, fill_bare
        if (inside := record_within(obj)) is not None:
            return record, inside
        if (inside := number_within(obj)) is not None:
            return number, inside
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
        if (instance := self.instances.reduced(obj)) is not None:
            return instance
        if self.instances.is_ordinary(kind):
            self._ordinary.add(kind)
        reduced = super().reducer_override(obj)
        return reduced_class(obj, reduced, numbered=False) if isinstance(obj, type) else reduced

    def _of_library(self, obj: Any) -> tuple[Any, ...] | None:
        """A library's own object, and its content, as far as that can be pickled."""
        kind = type(obj)
        own = self._own_objects.get(kind)
        if own is None:
            own = self._own_objects[kind] = {} if kind in self.dispatch_table else own_objects(kind)
        if not own or id(obj) not in own:
            return None
        if is_known(kind):
            return own_object, (own[id(obj)],)
        table, _, _ = held_by(obj)
        if not table or kind in self._asked:
            return None
        self.instances.last = kind
        return own_object, (own[id(obj)], kind), table, None, None, fill_own

    def _function(self, function: types.FunctionType, home: tuple[str, ...]) -> Any:
        """Its cells are filled afterwards: they may contain the function itself. home: see Landing.function."""
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
        """An array that owns its memory, which the rebuilt one does too. numpy itself would make a view of the stored
        memory."""
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


class IdentityPickler(StatePickler):
    """Also preserves the identity of objects that pickle treats as plain values: NaNs, which a dictionary finds by
    identity, and containers of a library. That takes a call for each object."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._nans: dict[int, tuple[int, object]] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is float:
            return self._nan(obj) if obj != obj else None
        if kind in _CONTAINERS and id(obj) in self._anchors:
            return "anchor", *self._anchors[id(obj)]
        return None

    def _nan(self, obj: float) -> tuple[object, ...]:
        for home in _HOMES_OF_NAN:
            if obj is getattr(sys.modules.get(home), "nan", None):
                return "nan", home
        place, _ = self._nans.setdefault(id(obj), (len(self._nans), obj))
        return "nan", place, struct.pack("<d", obj)

    def met(self) -> dict[int, tuple[int, object]]:
        return super().met() | self._nans


@own_builtins()
def pickled(
    value: object,
    namespace: Mapping[str, object],
    anchors: Anchors,
    *,
    owned: int = 0,
    axes: Places | None = None,
    own: OwnObjects | None = None,
    more: Callable[[Iterable[object]], list[Repair]] = lambda _: [],
) -> tuple[list[memoryview], dict[int, tuple[int, object]]]:
    """The stream and its buffers, and every object that was met, by identity. own: what is already known of
    libraries. more: gives further repairs.

    Raises NotKept, and any error that pickling the value raises.
    """
    asked = set[type]()
    make = StatePickler
    while True:
        stream, buffers = io.BytesIO(), list[memoryview]()
        pickler = make(stream, buffers, namespace, anchors, owned=owned, axes=axes, asked=asked, own=own)
        try:
            pickler.dump(value)
        except Exception:
            kind = pickler.instances.last
            if kind is None or kind in asked or len(asked) >= _MOST_ASKED:
                raise
            asked.add(kind)
            continue
        met = pickler.met()
        if make is StatePickler and _needs_identities(stream, met, anchors):
            make = IdentityPickler
            continue
        values = [each for _, each in met.values()]
        try:
            repairs = [("keys", *each) for each in stale_tables(values)] + more(values)
            repairs += [("columns", group, None) for group in sharing(values)]
        except KeysNotKeptError as error:
            raise NotKept(str(error)) from None
        if repairs:
            pickler.dump(repairs)
        return [stream.getbuffer(), *buffers], met


OwnObjects = dict[type, dict[int, str]]
"""See `own_objects`, by the class."""

Repair = tuple[str, object, object]
"""A change to an object after everything is rebuilt: its kind, the object, and the data."""


def _needs_identities(stream: io.BytesIO, met: Mapping[int, tuple[int, object]], anchors: Anchors) -> bool:
    if any(mark in stream.getvalue() for mark in _NANS):
        return True
    return any(type(met[each][1]) in _CONTAINERS for each in met.keys() & anchors.keys())


Anchors = Mapping[int, tuple[str, str]]
"""Objects of a process that stand for the same thing in every process of Cenote, by identity; see Landing.anchor."""


class Landing:
    """The context for rebuilding a stored state, in the namespace that is being filled."""

    def __init__(self, namespace: dict[str, object], anchors: Callable[[str, str], object]) -> None:
        """anchors: gives the object of this process for a kind and a name. Raises KeyError."""
        self._namespace = namespace
        self._anchors = anchors

    def anchor(self, kind: str, name: str) -> object:
        """An object that every process has, such as a stub of a host function."""
        try:
            return self._anchors(kind, name)
        except KeyError:
            raise LookupError(f"{name!r} of the client is not offered any more") from None

    def axis(self, places: tuple[Place, ...], *reduced: Any) -> object:
        """An index that some variables share."""
        return rebuilt(self._namespace, places, *reduced)

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
        self._stream = io.BytesIO(stream)
        super().__init__(self._stream, buffers=buffers)
        self._landing = landing
        self._nans: dict[int, float] = {}

    @own_builtins()
    def repaired(self, ways: Mapping[str, Callable[[Any, Any], None]]) -> Any:
        """The stored value, with its repairs applied. ways: functions for kinds of repairs that are not known
        here."""
        value = self.load()
        if self._stream.tell() < len(self._stream.getbuffer()):
            known: dict[str, Callable[[Any, Any], None]] = {"keys": fill, "columns": share, **ways}
            for kind, one, change in self.load():
                known[kind](one, change)
        return value

    def persistent_load(self, told: Any) -> Any:
        match told:
            case ("nan", int(place), data):
                return self._nans.setdefault(place, struct.unpack("<d", data)[0])
            case ("nan", home):
                return importlib.import_module(home).nan
            case ("anchor", kind, name):
                return self._landing.anchor(kind, name)
        raise pickle.UnpicklingError(f"{told!r} stands for nothing")

    def find_class(self, module: str, name: str) -> Any:
        module = MOVED.get(module, module)
        if module == __name__ and name.startswith(_LANDING):
            return getattr(self._landing, name.removeprefix(_LANDING))
        return super().find_class(module, name)


def load(parts: list[memoryview], landing: Landing) -> Any:
    """The stored value, in a jail; its buffers are this process's private pages. Raises any error of its code."""
    return StateUnpickler(parts, landing).repaired({})


@own_builtins()
def dump_process(
    state: dict[str, object], settings: Mapping[str, bytes], sources: Mapping[str, object]
) -> list[memoryview]:
    """Plain values, and objects of the standard library and numpy. Settings and sources are separate parts: they stay
    the same, or only grow, while random numbers are drawn.
    """
    parts = {"settings": dict(settings), "sources": list(sources.items())}
    apart = {key: pickle.PickleBuffer(pickle.dumps(part, protocol=5)) for key, part in parts.items()}
    buffers = list[memoryview]()
    stream = pickle.dumps(
        {**state, **apart}, protocol=5, buffer_callback=lambda each: buffers.append(each.raw())
    )
    return [memoryview(stream), *buffers]


@own_builtins()
def dump_settings(settings: Mapping[str, object]) -> dict[str, bytes]:
    """Each is pickled separately. A setting with a user's function or class is left out, since that belongs to the
    namespace."""
    found = dict[str, bytes]()
    for state, value in settings.items():
        with suppress(Exception):
            data = pickle.dumps(value, protocol=5)
            if b"__main__" not in data:
                found[state] = data
    return found


@own_builtins()
def load_sources(process: Mapping[str, Any]) -> dict[str, Any]:
    """The sources of a stored process; empty if it has none."""
    return dict(pickle.loads(process["sources"])) if "sources" in process else {}


@own_builtins()
def load_settings(process: Mapping[str, Any]) -> dict[str, object]:
    """The settings of a stored process; empty if it has none. Unreadable ones are left out."""
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
    """A data set of scikit-learn, whose own `__setstate__` drops the attributes that its other instances have."""
    items = iter(value.items())
    return copyreg.__newobj__, (type(value),), vars(value), None, items, _with_attributes  # type: ignore[attr-defined]


class _Nan:
    """Stands for numpy's NaN, which pickle treats as a plain number, and programs compare by `is`."""


_NAN = _Nan()


def _of_sklearn(value: Any) -> Any:
    """Many estimators have that NaN as a default."""
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
    """The library whose code has made a function, as decorators do; empty for a function that the library has by
    name.

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


def _filled(cls: type, state: Any) -> Any:
    """For stored states of earlier versions. A base class may have set attributes on it when it was made; these are
    in the stored order with the others."""
    attributes, _ = state
    for key in attributes.keys() & vars(cls).keys():
        if key[:2] != "__":
            delattr(cls, key)
    return cloudpickle.cloudpickle._class_setstate(cls, state)
