"""Functions and properties with a cache of functools, on their way through a pickle."""

from __future__ import annotations

import functools
from typing import Any

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


def reduced_property(obj: functools.cached_property[Any]) -> tuple[Any, ...]:
    """How to pickle a `cached_property`: with its name in its class, without the lock of Python 3.11."""
    return functools.cached_property, (obj.func,), {k: v for k, v in vars(obj).items() if k != "lock"}
