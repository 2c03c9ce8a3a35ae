"""A library's whole own state: a digest by which two looks can be compared.

`library_state` looks one level deep, and says which attribute has changed. This module continues into instances,
containers, classes, closures and caches, as the garbage collector knows them. Two looks of one process, or of its
forks, have equal digests only if no Python object of the library differs. State in C that the collector does not see
is unknown: then every step that uses the library counts as changing it.
"""

from __future__ import annotations

import builtins
import gc
import io
import itertools
import random
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator, Set
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from importlib.machinery import EXTENSION_SUFFIXES
from opcode import opmap
from re import Pattern
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

from cenote_worker.jail.tracking.descriptions.classes import (
    ABSTRACT,
    attributes,
    is_class,
    is_module,
    made_by_python,
    module_of,
    mro,
)
from cenote_worker.jail.tracking.process_state.library_state import KEEPING_CACHES
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST: Final = 60_000
"""Objects of one library that are looked at, which takes about 0.1 seconds. A larger library is blind."""

_ATOMS: Final = frozenset((int, str, bytes, bool, type(None), type(Ellipsis)))
_INEXACT: Final = frozenset((float, complex))

_LEAVES: Final = frozenset(
    (*_ATOMS, *_INEXACT, CodeType, BuiltinFunctionType, ClassMethodDescriptorType, GetSetDescriptorType,
     MemberDescriptorType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType, object, range, slice,
     type(NotImplemented), type(threading.Lock()), type(threading.RLock()), io.TextIOWrapper, io.BufferedReader,
     io.BufferedWriter, io.BufferedRandom, io.FileIO)
)  # fmt: skip
"""Types whose objects never change while they exist, or have no state that is not handled elsewhere."""

_VALUES: Final = frozenset(
    (date, datetime, time, timedelta, timezone, Decimal, Pattern, itertools.count, Context)
)
"""Types whose `repr` shows their whole state."""

_LARGE_ARRAY: Final = 2**22
_CODES: Final = 50_000

_COMPUTING: Final = frozenset(
    ("_yaml", "charset_normalizer", "contourpy", "kiwisolver", "markupsafe", "xxhash", "yaml", "zstandard")
)
"""Libraries in C without hidden state."""

_COMPILED: Final = tuple(EXTENSION_SUFFIXES)
_STANDARD: Final = sys.stdlib_module_names
_NOT_THEIRS: Final = frozenset(
    ("__main__", "__mp_main__", "cenote_worker", "cenote_security", "cenote_proto", "")
)
"""Modules of the user or the jail."""

_KNOWN_OTHERWISE: Final = frozenset(
    (
        "cloudpickle",
        "decimal",
        "encodings",
        "joblib",
        "locale",
        "logging",
        "packaging",
        "six",
        "threadpoolctl",
    )
)
"""Libraries whose changes are found by hidden state, or by the words of the code."""

WITH_REGISTRIES: Final = frozenset(("calendar", "codecs", "copyreg", "csv", "mimetypes", "xml"))
"""Modules of the standard library into which other libraries may put something. The rest changes only its caches when
they use it."""

_COLLECTED: Final = 1 << 14

_IMPORT, _EXTENDED = opmap["IMPORT_NAME"], opmap["EXTENDED_ARG"]
_modules = sys.modules
_builtins = vars(builtins)
_referents = gc.get_referents
_of_thread = threading.local.__getattribute__
_target_of = weakref.ReferenceType.__call__
_subclasses = type.__dict__["__subclasses__"]
_state_of = random.Random.getstate


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """One look at a library. digest: 0 if not all can be inspected. beside: other libraries that its objects or its
    code refer to. held: the ids of the objects that were met. codes: of the user's functions among these.
    """

    digest: int
    beside: frozenset[str] = frozenset()
    held: Set[int] = frozenset()
    codes: tuple[CodeType, ...] = ()

    @property
    def blind(self) -> bool:
        return not self.digest


def library_of(dotted: str) -> str:
    return dotted.partition(".")[0]


def keeps_something(library: str, own_modules: Set[str]) -> bool:
    """Whether it is imported, installed, and not known to have no state that a program sees."""
    if library in KEEPING_CACHES | _NOT_THEIRS | _KNOWN_OTHERWISE or library in own_modules:
        return False
    if library[:1] == "_" and is_standard(library):
        return False
    return isinstance(_modules.get(library), ModuleType)


def may_come(library: str) -> bool:
    """Whether it is not imported yet, and may have state once it is."""
    known = library in KEEPING_CACHES | _NOT_THEIRS | _KNOWN_OTHERWISE or is_standard(library)
    return library not in _modules and not known


def is_standard(library: str) -> bool:
    return library in _STANDARD


class _Blind(Exception):
    pass


class Index:
    """The modules by library; rebuilt when there are more."""

    def __init__(self) -> None:
        self._count = -1
        self._modules: dict[str, list[ModuleType]] = {}
        self.globals: dict[int, str] = {}
        """By id of a module's dictionary: its library."""

    def refresh(self) -> None:
        if len(_modules) == self._count:
            return
        found = list(_modules.items())
        self._count, self._modules, self.globals = len(found), {}, {}
        for dotted, module in found:
            if type(dotted) is str and isinstance(module, ModuleType) and is_module(module):
                library = library_of(dotted)
                self._modules.setdefault(library, []).append(module)
                self.globals[id(ModuleType.__getattribute__(module, "__dict__"))] = library

    def of(self, library: str) -> list[ModuleType]:
        return self._modules.get(library, [])

    def libraries(self) -> Set[str]:
        return self._modules.keys()


_words: dict[int, tuple[CodeType, frozenset[str]]] = {}


def _spoken_of(code: CodeType) -> frozenset[str]:
    """Libraries that a function, or code defined in it, imports at run time."""
    known = _words.get(id(code))
    if known is not None:
        return known[1]
    operations, arguments = code.co_code[::2], code.co_code[1::2]
    found = set[str]()
    if _IMPORT in operations:
        places = {arguments[n] for n, operation in enumerate(operations) if operation == _IMPORT}
        long = _EXTENDED in operations
        found = {name for n, name in enumerate(code.co_names) if long or n in places}
    for each in code.co_consts:
        if type(each) is CodeType:
            found |= _spoken_of(each)
    words = frozenset(each.partition(".")[0] for each in found)
    if len(_words) < _CODES:
        _words[id(code)] = code, words
    return words


def look(library: str, index: Index) -> Inside:
    """Never raises: a library that cannot be inspected is blind."""
    walk = _Walk(library, index)
    try:
        digest = walk.go()
    except Exception:  # too many objects, or a library that has been changed
        digest = 0
    beside = frozenset(walk.beside | (walk.words & index.libraries())) - {library}
    return Inside(digest=digest, beside=beside, held=walk.seen, codes=tuple(walk.codes))


class _Walk:
    def __init__(self, library: str, index: Index) -> None:
        self._library = library
        self._index = index
        self._globals = index.globals
        self._left = MOST
        self.beside = set[str]()
        self.seen = set[int]()
        self.words = set[str]()
        self.codes = list[CodeType]()
        self._blind = False

    def go(self) -> int:
        tables = [ModuleType.__getattribute__(each, "__dict__") for each in self._index.of(self._library)]
        if self._library not in _STANDARD | _COMPUTING:
            self._blind = any(str(each.get("__file__", "")).endswith(_COMPILED) for each in tables)
        self.seen.update(map(id, tables))
        digest, waiting = 0, list[object](tables)
        while waiting:
            self._left -= len(waiting)
            if self._left < 0:
                raise _Blind
            following = list[object]()
            for each in waiting:
                digest = hash((digest, *self._described(each, following)))
            waiting = following
        return 0 if self._blind else digest or 1

    def _described(self, value: Any, following: list[object]) -> Iterator[object]:
        kind = type(value)
        yield id(value)
        yield id(kind)
        told = _told(kind)
        held = _referents(value)
        if told is not None:
            said, more = told(value)
            yield said
            held += more
        if kind is FunctionType:
            if self._globals.get(id(value.__globals__), "") in _NOT_THEIRS:
                self.codes.append(value.__code__)
            else:
                self.words |= _spoken_of(value.__code__)
        elif told is None and is_class(value):
            held += _subclasses(value)
        for each in held:
            of = type(each)
            if of in _ATOMS:
                yield each
                yield id(of)
                continue
            if of in _INEXACT or of in _VALUES:
                yield repr(each)
                continue
            yield (number := id(each))
            if number not in self.seen and of not in _LEAVES:
                self.seen.add(number)
                if self._is_within(each, of, number):
                    following.append(each)

    def _is_within(self, value: Any, kind: type, number: int) -> bool:
        """Whether the value is inspected: modules and classes of other libraries belong to those."""
        if kind is dict:
            if (other := self._globals.get(number)) is not None:
                self.beside.add(other)
                return False
            return True
        if kind is ModuleType or is_module(value):
            name = ModuleType.__getattribute__(value, "__dict__").get("__name__")
            self.beside.add(library_of(name) if type(name) is str else "")
            return False
        if is_class(value):
            other = library_of(module_of(value))
            if other != self._library:
                self.beside.add(other)
            return other == self._library
        if (how := _how(kind)) is _BLIND:
            self._blind = True
        return how is not _LEAF


# -- objects of code in C --

_FOLLOWED, _LEAF, _BLIND = "followed", "leaf", "blind"

_NO_STATE: Final = frozenset(("_abc_data", "_localdummy", "Struct", "PyCapsule", "cython_function_or_method"))
_SEEN: Final = frozenset(
    (*_VALUES, *_INEXACT, *_ATOMS, tzinfo, dict, list, tuple, set, frozenset, BaseException, object)
)
"""Types in C without hidden state, from which classes are derived."""
_HIDING: Final = frozenset(
    ("HASH", "Compress", "Decompress", "mmap", "Connection", "Cursor", "PyCFuncPtr", "cycle")
)
"""Types of the standard library with state that the collector does not know."""

_hows: dict[type, str] = {}


def _how(kind: type) -> str:
    known = _hows.get(kind)
    if known is None:
        known = _how_of(kind)
        if library_of(module_of(kind)) not in _NOT_THEIRS:  # a class of the user's is not held
            _hows[kind] = known
    return known


def _how_of(kind: type) -> str:
    if _told(kind) is not None:
        return _FOLLOWED
    for base in mro(kind):
        if base in _SEEN or base.__name__ == "_lru_list_elem":
            return _FOLLOWED
        if made_by_python(base):
            continue
        home = library_of(module_of(base))
        if base.__name__ in _NO_STATE:
            return _LEAF
        if base.__name__ in _HIDING:
            return _BLIND
        if home in _COMPUTING or (home in KEEPING_CACHES and home not in _STANDARD):
            return _FOLLOWED
        if home not in _STANDARD and home != "builtins":
            return _BLIND
        return _FOLLOWED if base.__flags__ & _COLLECTED else _LEAF if base in _LEAVES else _BLIND
    return _FOLLOWED


_Told = Callable[[Any], tuple[object, list[object]]]
"""An object's state besides what the collector shows, and the other objects that it holds."""

_NOTHING: Final = object()


def _of_variable(value: ContextVar[object]) -> tuple[object, list[object]]:
    held = value.get(_NOTHING)
    return held is _NOTHING, [] if held is _NOTHING else [held]


def _of_array(value: Any) -> tuple[object, list[object]]:
    if value.nbytes > _LARGE_ARRAY or value.dtype.hasobject:
        raise _Blind
    return (str(value.dtype), value.shape, value.tobytes()), []


def _of_text(value: Any) -> tuple[object, list[object]]:
    return (True,) if value.closed else (value.tell(), value.getvalue()), []


def _of_generator(value: GeneratorType[Any, Any, Any]) -> tuple[object, list[object]]:
    return None if value.gi_frame is None else value.gi_frame.f_lasti, []


def _left_of(value: Any) -> tuple[object, list[object]]:
    return value.__length_hint__(), []


_TOLD: Final[dict[type, _Told]] = {
    random.Random: lambda value: (_state_of(value), []),
    ContextVar: _of_variable,
    threading.local: lambda value: (None, [_of_thread(value, "__dict__")]),
    weakref.ReferenceType: lambda value: (None, [_target_of(value)]),
    bytearray: lambda value: (bytes(value), []),
    array: lambda value: (value.tobytes(), []),
    io.StringIO: _of_text,
    io.BytesIO: _of_text,
    GeneratorType: _of_generator,
    **dict.fromkeys(
        map(type, (iter([]), iter(()), iter({}), iter(range(0)), iter(set()), iter(""))), _left_of
    ),
}

_tellers: dict[type, _Told | None] = {}


def _told(kind: type) -> _Told | None:
    if kind in _tellers:
        return _tellers[kind]
    found = next((_TOLD[base] for base in mro(kind) if base in _TOLD), None)
    bases = {(module_of(base), base.__name__) for base in mro(kind)}
    if ("numpy", "ndarray") in bases:
        found = _of_array
    elif ("_ctypes", "_CData") in bases and ("_ctypes", "CFuncPtr") not in bases:
        found = _of_memory
    if library_of(module_of(kind)) not in _NOT_THEIRS:
        _tellers[kind] = found
    return found


def _of_memory(value: Any) -> tuple[object, list[object]]:
    return bytes(memoryview(value)), []


# -- what a library may change of others --


def tables_of(library: str, index: Index) -> dict[str, tuple[object, int]]:
    """For a library known to have no state, the parts that another one may change: its classes, and the functions of
    its main module. By dotted names, each with a digest."""
    found = dict[str, tuple[object, int]]()
    for module in index.of(library):
        table = dict(ModuleType.__getattribute__(module, "__dict__"))
        name = str(table.get("__name__"))
        for value in table.values():
            if value is not None and is_class(value) and library_of(module_of(value)) == library:
                dotted = f"{module_of(value)}.{value.__qualname__}"
                if dotted not in found:
                    own = [(key, id(each)) for key, each in attributes(value).items() if key != ABSTRACT]
                    found[dotted] = value, hash(tuple(own))
        if name == library:
            functions = [(key, id(each)) for key, each in table.items() if type(each) in _FUNCTIONS]
            found[name] = module, hash(tuple(functions))
    return found


_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType)


def of_the_process(is_collecting: bool) -> dict[str, object]:
    """State in C of the standard library, by the module that sets it. is_collecting: the setting of `gc`."""
    found: dict[str, object] = {
        "sys": (
            sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(),
            id(sys.excepthook), id(sys.displayhook), id(sys.unraisablehook),
        ),
        "builtins": hash(tuple((key, id(each)) for key, each in _builtins.items() if key != "_")),
        "threading": (threading.stack_size(), id(threading.excepthook)),
        "gc": (is_collecting, gc.get_threshold(), gc.get_debug()),
    }  # fmt: skip
    for library, look_at in _OF_PROCESS:
        if (module := _modules.get(library)) is not None:
            found[library] = look_at(module)
    return found


_OF_PROCESS: Final[tuple[tuple[str, Callable[[Any], object]], ...]] = (
    ("csv", lambda csv: csv.field_size_limit()),
    ("socket", lambda socket: socket.getdefaulttimeout()),
    ("time", lambda time: time.tzname),
    ("faulthandler", lambda faulthandler: faulthandler.is_enabled()),
    ("tracemalloc", lambda tracemalloc: tracemalloc.is_tracing()),
)
