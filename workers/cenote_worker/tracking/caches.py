"""Caches of functions as descriptions: what they remember, in the order of use, and how often that was asked for."""

from __future__ import annotations

import functools
import gc
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.graph import ATOMS, Graph
from cenote_worker.tracking.objects import held_by

__builtins__ = BUILTINS

CACHE: Final[type] = type(functools.lru_cache(len))
_HITS: Final = 10_000
_ENTRIES: Final = 10_000
"""Calls by which a cache is made again, at most."""

_referents = gc.get_referents
_LINK: Final = "_lru_list_elem"
"""The class of what keeps a bounded cache in order. Each link's key and result are told for themselves."""


def cached(graph: Graph, value: Any) -> object:
    """Its parameters are attributes that `functools` has set."""
    graph.changeable(value)
    if remembered(value, graph.namespace) is None:
        graph.stay("a cache of functools cannot be pickled")
    held = [each for each in held_by(value) if not _is_of_the_order(each)]
    return (graph.tokens(held), tuple(value.cache_info()), graph.inline(value.__dict__))


def remembered(value: Any, namespace: Mapping[str, object]) -> list[tuple[tuple[Any, ...], object]] | None:
    """What a cache of a function of this namespace remembers, by arguments, the one that was used last behind the
    others; None unless calls with these would make a cache of the same kind remember all of it again.

    Only for arguments of which nobody's code is run to find them again, and while nothing was put out.
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
    """Nothing was set on it, and it does not tell types apart."""
    parameters = value.cache_parameters()
    fresh = vars(functools.lru_cache(parameters["maxsize"])(function))
    own = vars(value)
    same = all(own.get(key) is fresh[key] for key in fresh.keys() - {"cache_parameters", "__annotations__"})
    return own.keys() == fresh.keys() and same and not parameters["typed"]


def _bounded(held: list[Any]) -> list[tuple[object, object]]:
    """In the order of use, as the garbage collector is told of them: the class of links follows each key and its
    result, and the function and its mark as well."""
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
