"""Functions and properties with a cache of functools, on their way through a pickle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from cenote_worker.tracking.caches import remembered

_HERE = "the result"
_TEMPLATE = (lambda *_, **__: "the result".pop()).__code__  # type: ignore[attr-defined]
CACHED = type(functools.lru_cache(len))
"""What `cache` and `lru_cache` make of a function."""


def refuse_cache(cached: Any) -> None:
    """Raises TypeError for a function with a cache, of a module that another process has not.

    It would go as a name in that module. With an empty cache it could go as the function that it wraps, but in the
    jail it could not be stored any more once it was called.
    """
    raise TypeError(
        f"`{cached.__qualname__}` has a cache of functools, whose results cannot be copied; send the function "
        f"without the decorator"
    )


def reduced_cache(cached: Any, namespace: Mapping[str, object]) -> tuple[Any, ...] | None:
    """How to pickle it with what it remembers; None where that cannot be made again."""
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
    """Calls it as it was called; instead of the function's own code, one that gives the remembered result runs."""
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
    """In a list, since what is plain may be replaced by its like in constants of code."""
    constants = tuple([result] if each == _HERE else each for each in _TEMPLATE.co_consts)
    return _TEMPLATE.replace(co_consts=constants)


def reduced_property(obj: functools.cached_property[Any]) -> tuple[Any, ...]:
    """How to pickle a `cached_property`: with its name in its class, without the lock of Python 3.11."""
    return functools.cached_property, (obj.func,), {k: v for k, v in vars(obj).items() if k != "lock"}
