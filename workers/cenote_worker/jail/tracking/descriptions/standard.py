"""Built-in and standard objects as descriptions.

Caches of functions: their entries, in the order of use, and their hit counts. Closed files, and files in memory; an
open one on disk is not looked into. Writers and readers of tables of text (`csv`): their source or target, and their
format; rows are not kept.
"""

from __future__ import annotations

import _thread
import contextvars
import datetime
import functools
import gc
import io
import itertools
import math
import operator
import pathlib
import random
import re
import sys
import types
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from decimal import Context, Decimal, getcontext
from types import FunctionType, ModuleType
from typing import Any, Final

from cenote_security.sealed_memory import PrivatePages
from cenote_worker.jail.tracking.descriptions import objects
from cenote_worker.jail.tracking.descriptions.graph import ATOMS, Handler, ObjectGraph
from cenote_worker.jail.tracking.descriptions.iterators_unsafe import HALF_READ
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import packed
from cenote_worker.jail.tracking.descriptions.objects import held_by, members
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

CACHE: Final[type] = type(functools.lru_cache(len))
_HITS: Final = 10_000
_ENTRIES: Final = 10_000
"""Calls by which a cache is rebuilt, at most."""

_referents = gc.get_referents
_LINK: Final = "_lru_list_elem"
"""The class of the links that keep a bounded cache in order. Each link's key and result are described by
themselves."""


def cached(graph: ObjectGraph, value: Any) -> object:
    """The cache's parameters are attributes that `functools` has set."""
    graph.changeable(value)
    if remembered(value, graph.namespace) is None:
        graph.stay("a cache of functools cannot be pickled")
    held = [each for each in held_by(value) if not _is_of_the_order(each)]
    return (graph.tokens(held), tuple(value.cache_info()), graph.inline(value.__dict__))


def remembered(value: Any, namespace: Mapping[str, object]) -> list[tuple[tuple[Any, ...], object]] | None:
    """The entries of a cache of a function of this namespace, as arguments and result, the last used one last; None
    unless calls with these arguments would fill a cache of the same kind in the same way.

    Only for arguments whose lookup runs no user code, and while nothing was evicted.
    """
    function, info = vars(value).get("__wrapped__"), value.cache_info()
    held = _referents(value)
    if type(function) is not FunctionType or not any(each is function for each in held):
        return None
    if function.__globals__ is not namespace or function.__closure__ or not _is_as_made(value, function):
        return None
    if info.misses != info.currsize or info.hits > _HITS or info.currsize > _ENTRIES or info.maxsize == 0:
        return None
    found = _bounded(held) if info.maxsize else _unbounded(held)
    entries = [(_arguments(key), result) for key, result in found]
    return entries if len(entries) == info.currsize and all(_is_plain(each) for each, _ in entries) else None


def _is_as_made(value: Any, function: FunctionType) -> bool:
    """Nothing was set on it, and it does not distinguish types."""
    parameters = value.cache_parameters()
    fresh = vars(functools.lru_cache(parameters["maxsize"])(function))
    own = vars(value)
    same = all(own.get(key) is fresh[key] for key in fresh.keys() - {"cache_parameters", "__annotations__"})
    return own.keys() == fresh.keys() and same and not parameters["typed"]


def _bounded(held: list[Any]) -> list[tuple[object, object]]:
    """In the order of use, as the garbage collector lists them: the class of links follows each key and its result,
    and also the function and its mark."""
    links = [n for n, each in enumerate(held) if isinstance(each, type) and each.__name__ == _LINK]
    found = [(held[n - 2], held[n - 1]) for n in links if n >= 2]
    return [each for each in found if _is_plain(_arguments(each[0]))]


def _unbounded(held: list[Any]) -> list[tuple[object, object]]:
    tables = [each for each in held if type(each) is dict and "cache_parameters" not in each]
    return list(dict.items(tables[0])) if len(tables) == 1 else []


def _arguments(key: object) -> tuple[Any, ...]:
    """A number or a text is a key by itself; a mark between positional and other arguments is no plain value."""
    return key if type(key) is tuple else (key,)


def _is_plain(arguments: tuple[Any, ...]) -> bool:
    return all(_is_plain(each) if type(each) is tuple else type(each) in ATOMS for each in arguments)


def _is_of_the_order(value: Any) -> bool:
    if type(value) is dict:
        return any(type(each).__name__ == _LINK for each in dict.values(value))
    return type(value) is object or (isinstance(value, type) and value.__name__ == _LINK)


_ON_DISK: Final = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_state_of_text = io.StringIO.__getstate__


def _on_disk(graph: ObjectGraph, value: Any) -> object:
    """A file closed by `with` has a name and a mode, and no other accessible state."""
    if not _is_closed(value):
        return graph.follow(value)
    graph.changeable(value)
    told = (getattr(value, "encoding", None), getattr(value, "errors", None))
    own = value.__dict__
    return (graph.tokens((value.name, value.mode)), told, graph.inline(own) if own else None)


def _is_closed(value: Any) -> bool:
    """Whether the file itself is closed: a wrapper may be around any object, which has a `closed` and a `name` of its
    own."""
    try:
        if type(value) is io.TextIOWrapper:
            value = value.buffer
        if type(value) in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom):
            value = value.raw
    except ValueError:  # it was detached
        return False
    return type(value) is io.FileIO and value.closed


def _text_stream(graph: ObjectGraph, value: io.StringIO) -> object:
    graph.changeable(value)
    if value.closed:
        return ("closed", _own(graph, value))
    state: Any = _state_of_text(value)
    content, newline, position, _ = state
    return (content, newline, position, _own(graph, value))


def _bytes_stream(graph: ObjectGraph, value: io.BytesIO) -> object:
    graph.changeable(value)
    if value.closed:
        return ("closed", _own(graph, value))
    with value.getbuffer() as memory:
        content = graph.memory(memory, memory.nbytes)
    return (content, value.tell(), _own(graph, value))


def _own(graph: ObjectGraph, value: object) -> object:
    """Its own attributes, found without reading `__dict__`: that would create a dictionary, which shows in
    pickles."""
    return [graph.inline(each) for each in held_by(value) if type(each) is dict and each]


STREAMS: Final[dict[type, Handler]] = {
    **dict.fromkeys(_ON_DISK, _on_disk),
    io.StringIO: _text_stream,
    io.BytesIO: _bytes_stream,
}


_MANNERS: Final = (
    "delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting", "skipinitialspace", "strict",
)  # fmt: skip


def handlers(csv: ModuleType) -> dict[type, Handler]:
    """For exact types of an imported `csv`, which does not name them."""
    return {type(csv.writer(io.StringIO())): _writer, type(csv.reader([])): _reader}


def _writer(graph: ObjectGraph, value: Any) -> object:
    graph.changeable(value)
    graph.stay("a writer of tables cannot be pickled")
    return _table(graph, value)


def _reader(graph: ObjectGraph, value: Any) -> object:
    graph.changeable(value)
    graph.stay("a reader of tables cannot be pickled")
    return (_table(graph, value), value.line_num)


def _table(graph: ObjectGraph, value: Any) -> object:
    dialect = value.dialect
    held = [each for each in held_by(value) if each is not dialect]
    return (graph.tokens(held), graph.tokens(getattr(dialect, each) for each in _MANNERS))


_state_of = random.Random.getstate
_UNSET: Final = object()
_text_of_path = pathlib.PurePath.__str__
_held_by = objects.held_by
_TAKEN_OVER: Final = frozenset((*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__isabstractmethod__"))
"""Attributes that a static or class method has copied from its function."""


def _list(graph: ObjectGraph, value: list[object]) -> object:
    graph.changeable(value)
    return graph.sequence(value)


def _tuple(graph: ObjectGraph, value: tuple[object, ...]) -> object:
    return graph.sequence(value)


def _dict(graph: ObjectGraph, value: dict[object, object]) -> object:
    if value is graph.namespace:
        graph.out_of_sight("the namespace itself")
        return ("namespace",)
    graph.changeable(value)
    return graph.mapping(value)


def _set(graph: ObjectGraph, value: set[object]) -> object:
    graph.changeable(value)
    return members(graph, value, set)


def _frozenset(graph: ObjectGraph, value: frozenset[object]) -> object:
    return members(graph, value, frozenset)


def _defaultdict(graph: ObjectGraph, value: defaultdict[object, object]) -> object:
    graph.changeable(value)
    return (graph.token(value.default_factory), graph.mapping(dict(value)))


def _ordered(graph: ObjectGraph, value: OrderedDict[object, object]) -> object:
    graph.changeable(value)
    table = value.__dict__
    return (graph.mapping(dict(value.items())), graph.inline(table) if table else None)


def _deque(graph: ObjectGraph, value: deque[object]) -> object:
    graph.changeable(value)
    return (value.maxlen, graph.sequence(list(value)))


def _bytearray(graph: ObjectGraph, value: bytearray) -> object:
    graph.changeable(value)
    return graph.memory(value, len(value))


def _array(graph: ObjectGraph, value: array[Any]) -> object:
    graph.changeable(value)
    return (value.typecode, graph.memory(value, len(value) * value.itemsize), objects.mourners(graph, value))


def _memoryview(graph: ObjectGraph, value: memoryview) -> object:
    if type(value.obj) is PrivatePages:
        graph.out_of_sight("memory that arrays may lie in")
    if not value.contiguous:
        return graph.follow(value)
    graph.changeable(value)
    data = graph.memory(value.cast("B") if value.nbytes else b"", value.nbytes)
    return (value.format, value.shape, value.readonly, data, graph.token(value.obj))


def _range(_graph: ObjectGraph, value: range) -> object:
    return (value.start, value.stop, value.step)


def _slice(graph: ObjectGraph, value: slice) -> object:
    return graph.tokens((value.start, value.stop, value.step))


def _moment(graph: ObjectGraph, value: datetime.datetime) -> object:
    zone = value.tzinfo
    return (value.replace(tzinfo=None).isoformat(), value.fold, None if zone is None else graph.token(zone))


def _clock(graph: ObjectGraph, value: datetime.time) -> object:
    zone = value.tzinfo
    return (value.replace(tzinfo=None).isoformat(), value.fold, None if zone is None else graph.token(zone))


def _text(_graph: ObjectGraph, value: object) -> object:
    return repr(value)


def _decimal(graph: ObjectGraph, value: Decimal) -> object:
    graph.packages.add("decimal")
    return repr(value)


def _context(graph: ObjectGraph, value: Context) -> object:
    """Describes a context with its flags. The current context is indistinguishable from an equal one in another
    process."""
    graph.packages.add("decimal")
    graph.changeable(value)
    if value is getcontext():
        graph.stay("it is the context that decimals are computed in")
    return repr(value)


def _path(graph: ObjectGraph, value: pathlib.PurePath) -> object:
    graph.packages.add("pathlib")
    return _text_of_path(value)


def _pattern(_graph: ObjectGraph, value: re.Pattern[str]) -> object:
    return (value.pattern, value.flags)


def _partial(graph: ObjectGraph, value: functools.partial[object]) -> object:
    graph.changeable(value)
    table = value.__dict__
    return graph.tokens((value.func, value.args, value.keywords, table or None))


def _getter(graph: ObjectGraph, value: operator.attrgetter[Any] | operator.itemgetter[Any]) -> object:
    """Describes an object of `operator`, with the names that it looks up, which occur in no code."""
    reduced: Any = value.__reduce__()
    factory, given = reduced
    parts = (*factory.args, *given) if type(factory) is functools.partial else given
    graph.words.update(word for part in parts if type(part) is str for word in part.split("."))
    return graph.tokens((factory, given))


def _property(graph: ObjectGraph, value: property) -> object:
    return graph.tokens((value.fget, value.fset, value.fdel, value.__doc__))


def _wrapped(graph: ObjectGraph, value: staticmethod[Any, Any] | classmethod[Any, Any, Any]) -> object:
    """Describes it with what was set on it: its other attributes are copied from the function."""
    table = {key: item for key, item in value.__dict__.items() if key not in _TAKEN_OVER}
    return (graph.token(value.__func__), graph.mapping(table) if table else None)


def _cached_property(graph: ObjectGraph, value: functools.cached_property[object]) -> object:
    """Describes it without its lock, which is not state."""
    return graph.tokens((value.func, value.attrname))


def _proxy(graph: ObjectGraph, value: types.MappingProxyType[object, object]) -> object:
    return graph.tokens(_held_by(value))


def _generic(graph: ObjectGraph, value: types.GenericAlias) -> object:
    return graph.tokens((value.__origin__, value.__args__))


def _union(graph: ObjectGraph, value: types.UnionType) -> object:
    return graph.tokens(value.__args__)


def _random(graph: ObjectGraph, value: random.Random) -> object:
    graph.packages.add("random")
    graph.changeable(value)
    return graph.token(_state_of(value))


def _simple(graph: ObjectGraph, value: types.SimpleNamespace) -> object:
    graph.changeable(value)
    return graph.inline(value.__dict__)


def _not_a_number(_graph: ObjectGraph, value: object) -> object:
    """Describes NaNs only: other numbers are described with their holder. A copy of a constant is not the
    constant."""
    return (packed(value), value is math.nan, value is getattr(sys.modules.get("numpy"), "nan", None))


def _descriptor(_graph: ObjectGraph, value: object) -> object:
    return repr(value)


def _proxied(graph: ObjectGraph, _value: object) -> object:
    """Another object answers any question to it."""
    graph.out_of_sight("a weak proxy leads to what cannot be seen")
    return None


def _sentinel(graph: ObjectGraph, value: object) -> object:
    graph.changeable(value)
    return None


def _singleton(_graph: ObjectGraph, _value: object) -> object:
    return None


def _variable(graph: ObjectGraph, value: contextvars.ContextVar[object]) -> object:
    """Describes a context variable, with its value in the context of the cells. Its default is not described
    elsewhere."""
    graph.changeable(value)
    graph.stay("a context variable cannot be pickled")
    default = graph.tokens(_held_by(value))
    held = value.get(_UNSET)
    return (default, None if held is _UNSET else (graph.token(held),))


def _count(graph: ObjectGraph, value: itertools.count[Any]) -> object:
    """Only its text shows its position: safe if it counts in plain numbers."""
    if not {type(each) for each in _held_by(value) if each is not itertools.count} <= ATOMS:
        return graph.follow(value)
    graph.changeable(value)
    return repr(value)


def _lock(graph: ObjectGraph, value: Any) -> object:
    """Its owner is not described."""
    if not repr(value).startswith("<unlocked "):
        return graph.follow(value)
    graph.changeable(value)
    graph.stay("a lock cannot be pickled")
    return None


def _of_thread(graph: ObjectGraph, value: Any) -> object:
    """What the thread that runs the cells has there. While other threads are alive, nothing of a step is known."""
    graph.changeable(value)
    graph.stay("what belongs to a thread cannot be pickled")
    return graph.inline(value.__dict__)


_DESCRIPTORS = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, type(namedtuple("_Pair", "a").a),  # type: ignore[attr-defined]
)  # fmt: skip

_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)

STANDARD: Final[dict[type, Handler]] = {
    list: _list, tuple: _tuple, dict: _dict, set: _set, frozenset: _frozenset, defaultdict: _defaultdict,
    OrderedDict: _ordered, deque: _deque, bytearray: _bytearray, memoryview: _memoryview, array: _array,
    range: _range, slice: _slice, datetime.datetime: _moment, datetime.time: _clock, datetime.date: _text,
    datetime.timedelta: _text, datetime.timezone: _text, Decimal: _decimal, Context: _context,
    pathlib.PosixPath: _path, pathlib.PurePosixPath: _path,
    re.Pattern: _pattern, functools.partial: _partial, property: _property, staticmethod: _wrapped,
    classmethod: _wrapped, functools.cached_property: _cached_property, types.MappingProxyType: _proxy,
    types.GenericAlias: _generic, types.UnionType: _union, random.Random: _random, types.SimpleNamespace: _simple,
    weakref.finalize: objects.finalizer,
    weakref.ReferenceType: objects.weak, weakref.ProxyType: _proxied, weakref.CallableProxyType: _proxied,
    float: _not_a_number, complex: _not_a_number,
    object: _sentinel, type(NotImplemented): _singleton, types.CellType: objects.cell, types.CodeType: objects.code,
    types.MethodType: objects.method, types.BuiltinFunctionType: objects.builtin,
    types.MethodWrapperType: objects.bound_slot, contextvars.ContextVar: _variable,
    contextvars.Token: ObjectGraph.follow, itertools.count: _count,
    **dict.fromkeys(_GETTERS, _getter), _thread._local: _of_thread, CACHE: cached,
    **dict.fromkeys((type(_thread.allocate_lock()), _thread.RLock), _lock),
    **STREAMS, **HALF_READ, **dict.fromkeys(_DESCRIPTORS, _descriptor),
}  # fmt: skip
