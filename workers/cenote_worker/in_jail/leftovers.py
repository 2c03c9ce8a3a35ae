"""What ordinary cells leave behind and pickle refuses, or stores as something else: reduced to what it stands for.

`with open(...) as f` leaves a closed file, `m = re.match(...)` a match, `keys = d.keys()` a view that follows its
dictionary. Programs that are stored mid-way are full of them.
"""

from __future__ import annotations

import gc
import io
import os
import re
import weakref
from collections import OrderedDict
from types import MappingProxyType
from typing import IO, Any

from cenote_worker.in_jail.pristine import BUILTINS

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
    """How to pickle it, as `reducer_override` gives it; None for anything else."""
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
    """What it leads to comes along, and lives as long as something else has it."""
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
    """What a proxy leads to, which it says by no attribute of its own; None if that is gone."""
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
    """A file that nobody can read or write any more."""
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
    """A match does not say how it was found. One of three ways finds it again, unless it was one of several."""
    where = match.string, match.pos, match.endpos
    for way in _WAYS:
        again = found_again(way, match.re, *where)
        if again is not None and again.regs == match.regs:
            return found_again, (way, match.re, *where)
    return None
