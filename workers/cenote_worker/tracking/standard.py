"""Built-in and standard objects as descriptions."""

from __future__ import annotations

import _thread
import contextvars
import datetime
import functools
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
from decimal import Context, Decimal, getcontext
from typing import Any, Final

from cenote_security.sealed import PrivatePages
from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking import objects
from cenote_worker.tracking.caches import CACHE, cached
from cenote_worker.tracking.graph import ATOMS, Graph, Handler
from cenote_worker.tracking.iterators_unsafe import HALF_READ
from cenote_worker.tracking.packing_unsafe import packed
from cenote_worker.tracking.sets import members
from cenote_worker.tracking.streams import STREAMS

__builtins__ = BUILTINS

_state_of = random.Random.getstate
_UNSET: Final = object()
_text_of_path = pathlib.PurePath.__str__
_held_by = objects.held_by
_TAKEN_OVER: Final = frozenset((*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__isabstractmethod__"))
"""What a static or class method has of its function."""


def _list(graph: Graph, value: list[object]) -> object:
    graph.changeable(value)
    return graph.sequence(value)


def _tuple(graph: Graph, value: tuple[object, ...]) -> object:
    return graph.sequence(value)


def _dict(graph: Graph, value: dict[object, object]) -> object:
    if value is graph.namespace:
        graph.out_of_sight("the namespace itself")
        return ("namespace",)
    graph.changeable(value)
    return graph.mapping(value)


def _set(graph: Graph, value: set[object]) -> object:
    graph.changeable(value)
    return members(graph, value, set)


def _frozenset(graph: Graph, value: frozenset[object]) -> object:
    return members(graph, value, frozenset)


def _defaultdict(graph: Graph, value: defaultdict[object, object]) -> object:
    graph.changeable(value)
    return (graph.token(value.default_factory), graph.mapping(dict(value)))


def _ordered(graph: Graph, value: OrderedDict[object, object]) -> object:
    graph.changeable(value)
    table = value.__dict__
    return (graph.mapping(dict(value.items())), graph.inline(table) if table else None)


def _deque(graph: Graph, value: deque[object]) -> object:
    graph.changeable(value)
    return (value.maxlen, graph.sequence(list(value)))


def _bytearray(graph: Graph, value: bytearray) -> object:
    graph.changeable(value)
    return graph.memory(value, len(value))


def _array(graph: Graph, value: array[Any]) -> object:
    graph.changeable(value)
    return (value.typecode, graph.memory(value, len(value) * value.itemsize), objects.mourners(graph, value))


def _memoryview(graph: Graph, value: memoryview) -> object:
    if type(value.obj) is PrivatePages:
        graph.out_of_sight("memory that arrays may lie in")
    if not value.contiguous:
        return graph.follow(value)
    graph.changeable(value)
    data = graph.memory(value.cast("B") if value.nbytes else b"", value.nbytes)
    return (value.format, value.shape, value.readonly, data, graph.token(value.obj))


def _range(_graph: Graph, value: range) -> object:
    return (value.start, value.stop, value.step)


def _slice(graph: Graph, value: slice) -> object:
    return graph.tokens((value.start, value.stop, value.step))


def _moment(graph: Graph, value: datetime.datetime) -> object:
    zone = value.tzinfo
    return (value.replace(tzinfo=None).isoformat(), value.fold, None if zone is None else graph.token(zone))


def _clock(graph: Graph, value: datetime.time) -> object:
    zone = value.tzinfo
    return (value.replace(tzinfo=None).isoformat(), value.fold, None if zone is None else graph.token(zone))


def _text(_graph: Graph, value: object) -> object:
    return repr(value)


def _decimal(graph: Graph, value: Decimal) -> object:
    graph.packages.add("decimal")
    return repr(value)


def _context(graph: Graph, value: Context) -> object:
    """With its flags. The one that is used cannot be told from one like it once both are elsewhere."""
    graph.packages.add("decimal")
    graph.changeable(value)
    if value is getcontext():
        graph.stay("it is the context that decimals are computed in")
    return repr(value)


def _path(graph: Graph, value: pathlib.PurePath) -> object:
    graph.packages.add("pathlib")
    return _text_of_path(value)


def _pattern(_graph: Graph, value: re.Pattern[str]) -> object:
    return (value.pattern, value.flags)


def _partial(graph: Graph, value: functools.partial[object]) -> object:
    graph.changeable(value)
    table = value.__dict__
    return graph.tokens((value.func, value.args, value.keywords, table or None))


def _getter(graph: Graph, value: operator.attrgetter[Any] | operator.itemgetter[Any]) -> object:
    """Of `operator`, with the names that it looks up, which no code speaks of."""
    reduced: Any = value.__reduce__()
    factory, given = reduced
    parts = (*factory.args, *given) if type(factory) is functools.partial else given
    graph.words.update(word for part in parts if type(part) is str for word in part.split("."))
    return graph.tokens((factory, given))


def _property(graph: Graph, value: property) -> object:
    return graph.tokens((value.fget, value.fset, value.fdel, value.__doc__))


def _wrapped(graph: Graph, value: staticmethod[Any, Any] | classmethod[Any, Any, Any]) -> object:
    """With what was set on it: of its own it has only what it has taken over from the function."""
    table = {key: item for key, item in value.__dict__.items() if key not in _TAKEN_OVER}
    return (graph.token(value.__func__), graph.mapping(table) if table else None)


def _cached_property(graph: Graph, value: functools.cached_property[object]) -> object:
    """Without its lock, which is nobody's state."""
    return graph.tokens((value.func, value.attrname))


def _proxy(graph: Graph, value: types.MappingProxyType[object, object]) -> object:
    return graph.tokens(_held_by(value))


def _generic(graph: Graph, value: types.GenericAlias) -> object:
    return graph.tokens((value.__origin__, value.__args__))


def _union(graph: Graph, value: types.UnionType) -> object:
    return graph.tokens(value.__args__)


def _random(graph: Graph, value: random.Random) -> object:
    graph.packages.add("random")
    graph.changeable(value)
    return graph.token(_state_of(value))


def _simple(graph: Graph, value: types.SimpleNamespace) -> object:
    graph.changeable(value)
    return graph.inline(value.__dict__)


def _not_a_number(_graph: Graph, value: object) -> object:
    """Other numbers are told in the description of what holds them. A copy of a constant is not the constant."""
    return (packed(value), value is math.nan, value is getattr(sys.modules.get("numpy"), "nan", None))


def _descriptor(_graph: Graph, value: object) -> object:
    return repr(value)


def _proxied(graph: Graph, _value: object) -> object:
    """Whatever it is asked, something else answers."""
    graph.out_of_sight("a weak proxy leads to what cannot be seen")
    return None


def _sentinel(graph: Graph, value: object) -> object:
    graph.changeable(value)
    return None


def _singleton(_graph: Graph, _value: object) -> object:
    return None


def _variable(graph: Graph, value: contextvars.ContextVar[object]) -> object:
    """Of a context, with what it has in that of the cells. Its default is not told otherwise."""
    graph.changeable(value)
    graph.stay("a context variable cannot be pickled")
    default = graph.tokens(_held_by(value))
    held = value.get(_UNSET)
    return (default, None if held is _UNSET else (graph.token(held),))


def _count(graph: Graph, value: itertools.count[Any]) -> object:
    """Nothing but its text says how far it is: safe where it counts in plain numbers."""
    if not {type(each) for each in _held_by(value) if each is not itertools.count} <= ATOMS:
        return graph.follow(value)
    graph.changeable(value)
    return repr(value)


def _lock(graph: Graph, value: Any) -> object:
    """Who has it is not told."""
    if not repr(value).startswith("<unlocked "):
        return graph.follow(value)
    graph.changeable(value)
    graph.stay("a lock cannot be pickled")
    return None


def _of_thread(graph: Graph, value: Any) -> object:
    """What the thread that runs the cells has there. While others are alive, nothing of a step is known."""
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
    contextvars.Token: Graph.follow, itertools.count: _count,
    **dict.fromkeys(_GETTERS, _getter), _thread._local: _of_thread, CACHE: cached,
    **dict.fromkeys((type(_thread.allocate_lock()), _thread.RLock), _lock),
    **STREAMS, **HALF_READ, **dict.fromkeys(_DESCRIPTORS, _descriptor),
}  # fmt: skip
