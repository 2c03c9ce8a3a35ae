"""Reducers for objects that pickle refuses, or stores as something else.

`with open(...) as f` leaves a closed file, `m = re.match(...)` a match, `keys = d.keys()` a view of its dictionary;
others are functions with a cache of functools, and rows of `sqlite3`. Programs that are stored in the middle often
have them. Each is reduced to what it stands for.
"""

from __future__ import annotations

import functools
import gc
import importlib
import io
import os
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import CodeType, MappingProxyType
from typing import IO, Any

from cenote_worker.jail.tracking.descriptions.standard import remembered
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_VIEWS: dict[type, Any] = {
    type({}.keys()): dict.keys,
    type({}.values()): dict.values,
    type({}.items()): dict.items,
    type(OrderedDict().keys()): OrderedDict.keys,
    type(OrderedDict().values()): OrderedDict.values,
    type(OrderedDict().items()): OrderedDict.items,
    MappingProxyType: MappingProxyType,
}
_WEAK = (weakref.ReferenceType, *weakref.ProxyTypes, weakref.WeakSet, weakref.WeakMethod,
         weakref.WeakValueDictionary, weakref.WeakKeyDictionary)  # fmt: skip
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_WAYS = ("match", "fullmatch", "search")


def reduced_leftover(value: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """How to pickle it, as `reducer_override` returns it; None for anything else."""
    kind = type(value)
    if kind in _VIEWS:
        (mapping,) = gc.get_referents(value)  # its own attribute gives a read-only stand-in
        return _VIEWS[kind], (mapping,)
    if kind is re.Match:
        return _match(value)
    if kind in _WEAK:
        return _weak(value)
    if kind in _FILES and value.closed:
        return closed_file, (value.name, value.mode, getattr(value, "encoding", None), kind is io.FileIO)
    return None


def _weak(value: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The target comes along, and lives as long as something else holds it."""
    kind = type(value)
    if kind is weakref.WeakSet:
        return kind, (list(value),)
    if kind in (weakref.WeakValueDictionary, weakref.WeakKeyDictionary):
        return kind, (dict(value.items()),)
    if kind is weakref.WeakMethod:
        return None if (method := value()) is None else (kind, (method,))
    if kind is weakref.ReferenceType:
        found, callback = value(), value.__callback__
    else:
        found, callback = _behind(value), next(iter(gc.get_referents(value)), None)
    if found is None:
        return dead, (kind is not weakref.ReferenceType,)
    return (weakref.ref if kind is weakref.ReferenceType else weakref.proxy), (found, callback)


def _behind(proxy: Any) -> object:
    """The target of a proxy, which no attribute of the proxy gives; None if it is gone."""
    try:
        return proxy.__repr__.__self__
    except ReferenceError:
        return None


def dead(as_proxy: bool) -> object:
    """A reference whose object is gone."""
    return weakref.proxy(_Gone()) if as_proxy else weakref.ref(_Gone())


class _Gone:
    pass


def closed_file(name: object, mode: str, encoding: str | None, unbuffered: bool) -> IO[Any]:
    """A closed file, which cannot be read or written."""
    file = open(os.devnull, mode.replace("x", "w"), 0 if unbuffered else -1, encoding)  # noqa: SIM115  (closed below)
    raw: Any = getattr(getattr(file, "buffer", file), "raw", file)
    raw.name = name
    file.close()
    return file


def found_again(way: str, pattern: re.Pattern[Any], *where: Any) -> re.Match[Any] | None:
    """The match that a search for it gives."""
    found: re.Match[Any] | None = getattr(pattern, way)(*where)
    return found


def _match(match: re.Match[Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """A match does not say how it was found. One of three functions finds it again, unless it was one of several
    matches."""
    where = match.string, match.pos, match.endpos
    for way in _WAYS:
        again = found_again(way, match.re, *where)
        if again is not None and again.regs == match.regs:
            return found_again, (way, match.re, *where)
    return None


_HERE = "the result"
_TEMPLATE = (lambda *_, **__: "the result".pop()).__code__  # type: ignore[attr-defined]
CACHED = type(functools.lru_cache(len))
"""The type of functions decorated with `cache` or `lru_cache`."""


def refuse_cache(cached: Any) -> None:
    """Raises TypeError for a function with a cache, of a module that another process lacks.

    It would be pickled as a name in that module. With an empty cache it could be pickled as the function that it
    wraps, but then the jail could no longer store it after its first call.
    """
    raise TypeError(
        f"`{cached.__qualname__}` has a cache of functools, whose results cannot be copied; send the function "
        f"without the decorator"
    )


def reduced_cache(cached: Any, namespace: Mapping[str, object]) -> tuple[Any, ...] | None:
    """How to pickle it with its entries; None if these cannot be rebuilt."""
    entries = remembered(cached, namespace)
    if entries is None:
        return None
    # Whether the decorator was given no arguments.
    bare = "decorating_function" not in cached.cache_parameters.__qualname__
    made = (cached.__wrapped__, *(() if bare else (cached.cache_parameters()["maxsize"],)))
    return cache_of, made, (entries, cached.cache_info().hits), None, None, fill


def cache_of(function: Callable[..., object], *maxsize: int | None) -> Any:
    return functools.lru_cache(maxsize[0])(function) if maxsize else functools.lru_cache(function)


def fill(cached: Any, state: tuple[list[tuple[tuple[Any, ...], object]], int]) -> None:
    """Repeats the calls; instead of the function's own code, code that returns the stored result runs."""
    entries, hits = state
    function = cached.__wrapped__
    own = function.__code__
    try:
        for arguments, result in entries:
            function.__code__ = _giving(result)
            cached(*arguments)
        for _ in range(hits):
            cached(*entries[-1][0])
    finally:
        function.__code__ = own


def _giving(result: object) -> CodeType:
    """In a list, since a plain constant in code may be replaced by an equal one."""
    constants = tuple([result] if each == _HERE else each for each in _TEMPLATE.co_consts)
    return _TEMPLATE.replace(co_consts=constants)


def reduced_property(obj: functools.cached_property[Any]) -> tuple[Any, ...]:
    """How to pickle a `cached_property`: with its name in its class, without the lock of Python 3.11."""
    return functools.cached_property, (obj.func,), {k: v for k, v in vars(obj).items() if k != "lock"}


_modules = sys.modules


def reduced_row(obj: Any) -> tuple[Any, ...] | None:
    """How to pickle a row, as `reducer_override` returns it; None for any other object."""
    sqlite = _modules.get("sqlite3")
    if sqlite is None or type(obj) is not sqlite.Row:
        return None
    return made_row, (tuple(obj.keys()), tuple(obj))


def made_row(keys: tuple[str, ...], values: tuple[object, ...]) -> object:
    """A row takes its keys from a cursor, which takes them from a query."""
    sqlite = importlib.import_module("sqlite3")
    quoted = (key.replace('"', '""') for key in keys)
    named = ", ".join(f'null as "{key}"' for key in quoted)
    connection = sqlite.connect(":memory:")
    try:
        return sqlite.Row(connection.execute(f"select {named}"), values)
    finally:
        connection.close()
