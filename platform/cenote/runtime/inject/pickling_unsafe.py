"""Objects of the client, on their way into a jail: pickled by value, large buffers out of band.

What a jail can import (the standard library and installed packages) goes by reference; functions and classes of
the user's own modules go by value, since a jail does not see the user's files.
"""

from __future__ import annotations

import builtins
import functools
import io
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import cloudpickle

from cenote.runtime.inject import records
from cenote.runtime.inject.records import reducer_of, refuse_code
from cenote_security.errors import NotCopiedError, NotTransferableError
from cenote_security.garbage_collection import collector_off
from cenote_security.walls.interpreter import is_installed
from cenote_worker.jail.libraries.pydantic_schemas import reduced_schema
from cenote_worker.jail.values.pickle_reducers import CACHED, reduced_property, refuse_cache
from cenote_worker.jail.values.records import itself
from cenote_worker.jail.values.value_pickles_unsafe import sent_class
from cenote_worker.pickling.buffers_unsafe import KeepInBand, dumps, loads
from cenote_worker.pickling.classes_unsafe import LATE_TYPES, reduced_class, reduced_late_type
from cenote_worker.pickling.code_objects import of_this_version
from cenote_worker.pickling.tensors_unsafe import reduced_tensor
from cenote_worker.transport.content import Content

_OF_MODULES = (type, types.FunctionType, *LATE_TYPES)
"""What is pickled as a name in a module where that can be."""

_HEAPTYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: of each class that a class statement makes."""

_COMPILED = tuple(EXTENSION_SUFFIXES)

_FILES = (io.TextIOWrapper, io.BufferedIOBase, io.RawIOBase)

_KEEP_IT = "keep it in the client with Variable(..., host=True) or a Function(..., host=True)"

_registry = threading.Lock()
"""cloudpickle's list of by-value modules is global to the process; it is changed only under this lock."""


@dataclass(frozen=True, slots=True)
class PickledValue:
    """A pickle and the classes that went by value in it, and those that went as data, by `module:qualname`."""

    content: Content
    classes: dict[str, type]
    records: dict[str, type]


@dataclass(frozen=True, slots=True)
class DataOnly:
    """Objects of the client's classes go as their fields, and its functions not at all.

    sent: classes that went by value before, and do so again. live: objects, by their ids, that stay in the client.
    """

    sent: Collection[type] = ()
    live: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class AsData:
    """A class that goes as data in a pickle by value, and whatever comes after it there."""

    cls: type
    data: DataOnly


def dump(name: str, value: object, instead: str = _KEEP_IT, data: DataOnly | None = None) -> PickledValue:
    """Pickles `value`. name: only for the error. instead: what its reader may do, of what cannot be pickled.

    Raises NotTransferableError with the reason: a generator, a lock, an open file, a live connection.
    """
    classes: dict[str, type] = {}
    records: dict[str, type] = {}

    def pickle_to(stream: io.BytesIO, keep_in_band: KeepInBand) -> None:
        with _foreign_modules_by_value() as by_value:
            pickler = _Pickler(stream, keep_in_band, by_value, data)
            try:
                pickler.dump(value)
            except Exception as error:
                raise NotTransferableError(name, _reason(error, instead)) from error
            classes.update(pickler.classes)
            records.update(pickler.records)

    return PickledValue(dumps(pickle_to), classes, records)


def load_trusted(content: Content) -> object:
    """Unpickles what came from a jail: only for `retrieve(..., trusted=True)`, at the caller's own risk."""
    with collector_off(stays=False):
        return loads(content)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, which also notes what classes it sends by value.

    by_value: called with the name of each module that a function or class is of, before it is pickled.
    """

    def __init__(
        self,
        stream: io.BytesIO,
        keep_in_band: KeepInBand,
        by_value: Callable[[object], None],
        data: DataOnly | None,
    ) -> None:
        super().__init__(stream, protocol=5, buffer_callback=keep_in_band)
        self._by_value = by_value
        self._data = data
        self._clients: dict[type, bool] = {}
        self._reducers: dict[type, Callable[[Any], Any]] = {}
        self.classes: dict[str, type] = {}
        self.records: dict[str, type] = {}

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is AsData:
            self._data = obj.data
            return itself, (obj.cls,)
        if self._data is not None and (known := self._as_data(obj, self._data)) is not None:
            return known
        if isinstance(obj, Generator | types.AsyncGeneratorType | types.CoroutineType):
            raise TypeError(
                f"a {type(obj).__name__} holds a running frame and cannot be copied; send list(...) of it, "
                f"or the function that makes it"
            )
        if isinstance(obj, _FILES) and not isinstance(obj, io.BytesIO):
            # cloudpickle would send a copy of a text file's content without a word.
            raise TypeError("an open file stays where it is; send what you read from it")
        if (known := reduced_schema(obj) or reduced_tensor(obj, whole=False)) is not None:
            return known
        if type(obj) is CACHED and (is_foreign(obj) or "<locals>" in obj.__qualname__):
            refuse_cache(obj)
        if type(obj) is functools.cached_property:
            return reduced_property(obj)
        if isinstance(obj, _OF_MODULES):
            self._by_value(obj.__module__)
        elif isinstance(obj, types.ModuleType):
            self._by_value(obj.__name__)
        if (late := reduced_late_type(obj)) is not None:
            return late
        if isinstance(obj, types.CodeType):
            return of_this_version(obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and reduced is not NotImplemented:
            self.classes[f"{obj.__module__}:{obj.__qualname__}"] = obj
            return reduced_class(obj, reduced, numbered=True)
        return reduced

    def _as_data(self, obj: Any, data: DataOnly) -> Any:
        if isinstance(obj, type):
            if obj in data.sent:
                return sent_class, (cloudpickle.cloudpickle._get_or_create_tracker_id(obj), self._alone(obj))
            if not self._is_clients(obj):
                return None
            self.records[f"{obj.__module__}:{obj.__qualname__}"] = obj
            return records.reduced_class(obj, self._is_clients)
        if isinstance(obj, types.FunctionType):
            return refuse_code(obj) if is_foreign(obj) or _has_clients_globals(obj) else None
        if isinstance(obj, types.ModuleType):
            return refuse_code(obj) if _is_clients_module(obj) else None
        cls = type(obj)
        if not self._is_clients(cls):
            return None
        if id(obj) in data.live:
            raise TypeError(f"the {cls.__qualname__} itself stays in the client")
        if cls not in self._reducers:
            self._reducers[cls] = reducer_of(cls, self._is_clients)
        return self._reducers[cls](obj)

    def _alone(self, cls: type) -> bytes:
        """The class by value, in a pickle of its own."""
        stream = io.BytesIO()
        _Pickler(stream, lambda _: True, self._by_value, None).dump(cls)
        return stream.getvalue()

    def _is_clients(self, cls: Any) -> bool:
        known = self._clients.get(cls)
        if known is None:
            sent = self._data is not None and cls in self._data.sent
            known = self._clients[cls] = not sent and cls not in self.classes.values() and is_foreign(cls)
        return known


def _has_clients_globals(function: types.FunctionType) -> bool:
    """Also of one that says that it is another module's, as `functools.wraps` has it."""
    module = sys.modules.get(function.__globals__.get("__name__") or "")
    return module is not None and vars(module) is function.__globals__ and _is_clients_module(module)


def _is_clients_module(module: types.ModuleType) -> bool:
    return module.__name__ == "__main__" or _is_foreign(module.__name__, module)


def _reason(error: Exception, instead: str) -> str:
    text = str(error).strip() or type(error).__name__
    if isinstance(error, NotCopiedError):  # which says itself what to do instead
        return text[:500]
    return f"{text[:500]}; {instead}" if "pickle" in text and "generator" not in text else text[:500]


@contextmanager
def _foreign_modules_by_value() -> Iterator[Callable[[object], None]]:
    """Gives a function that lets a module be pickled by value, if no jail can import it, while this holds."""
    with _registry:
        already = set(cloudpickle.list_registry_pickle_by_value())
        added: dict[str, types.ModuleType] = {}

        def by_value(name: object) -> None:
            if not isinstance(name, str) or name in added or name in already:
                return
            module = sys.modules.get(name)
            # cloudpickle sends `__main__` by value itself, and refuses modules under other names.
            if name == "__main__" or not isinstance(module, types.ModuleType) or module.__name__ != name:
                return
            if _is_foreign(name, module):
                added[name] = module
                cloudpickle.register_pickle_by_value(module)

        try:
            yield by_value
        finally:
            for module in added.values():
                cloudpickle.unregister_pickle_by_value(module)


def is_foreign(cls: Any) -> bool:
    """Whether a class or function is the user's own: a jail gets it by value, since it cannot import it."""
    if cls.__module__ == "__main__":
        return True
    if cls.__module__ == "builtins":
        # What `exec` makes in a plain dictionary says that it is of builtins. Those are written in C.
        return isinstance(cls, types.FunctionType) or bool(isinstance(cls, type) and _is_made_in_python(cls))
    module = sys.modules.get(cls.__module__)
    return module is None or _is_foreign(cls.__module__, module)


def _is_made_in_python(cls: type) -> bool:
    return vars(builtins).get(cls.__name__) is not cls and bool(cls.__flags__ & _HEAPTYPE)


def _is_foreign(name: str, module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or name.partition(".")[0] in _OURS:
        return False
    return not (file.startswith(_VISIBLE) or is_installed(file, sys.path) or _is_compiled(name))


def _is_compiled(name: str) -> bool:
    """Whether a module is of a package with compiled parts, which no pickle can hold: it has to be installed."""
    top = name.partition(".")[0]
    return hasattr(sys.modules.get(top), "__path__") and _has_extensions(top, len(sys.modules))


@functools.lru_cache(maxsize=512)
def _has_extensions(package: str, _modules: int) -> bool:
    """_modules: how many are loaded; asked again when there are more."""
    folders = tuple(f"{folder}/" for folder in sys.modules[package].__path__)
    parts = (module for name, module in list(sys.modules.items()) if name.startswith(f"{package}."))
    files = (getattr(module, "__file__", None) for module in parts)
    return any(type(file) is str and file.endswith(_COMPILED) and file.startswith(folders) for file in files)


def _visible_prefixes() -> tuple[str, ...]:
    paths = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {str(Path(path).resolve()) for path in paths if path}
    return tuple(path.rstrip("/") + "/" for path in paths if path)


_VISIBLE = _visible_prefixes()
_OURS = frozenset({"cenote_worker", "cenote_security", "cenote_proto"})
"""Cenote's own packages that a jail sees. `cenote` itself is not among them: it is the client's side."""
