"""Code that is not Cenote's, under the interpreter's builtins as they were before any cell ran.

Modules of the standard library that Cenote's functions use get them from `keep_library`. Code of libraries that
Cenote runs for itself, as pickling does, runs under `own_builtins`.
"""

from __future__ import annotations

import _weakrefset
import builtins
import contextlib
import dataclasses
import difflib
import functools
import pathlib
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final, cast

__all__ = ["BUILTINS", "builtins_of_cells", "keep_library", "own_builtins"]


BUILTINS = ModuleType("builtins")
"""The interpreter's builtins as they were before any cell ran. A module that sets `__builtins__ = BUILTINS` above its
functions keeps working on these, whatever a cell assigns to `builtins.len`."""

vars(BUILTINS).update(vars(builtins))
__builtins__ = BUILTINS

_live: Final = vars(builtins)
_ABSENT: Final = object()
_aside: Final[list[dict[str, object]]] = []
"""What cells have in place of the builtins that are the real ones for the time being; a dictionary for each
`own_builtins` that is entered, of which only the first can have something."""

_PROPERTY: Final = ("fget", "fset", "fdel")


@contextmanager
def own_builtins() -> Iterator[None]:
    """For code of libraries, which finds its builtins where cells find theirs: meanwhile those that a cell has
    replaced or deleted are the real ones. What a cell has added stays.
    """
    _aside.append(_set_aside())
    try:
        yield
    finally:
        _put_back(_aside.pop())


@contextmanager
def builtins_of_cells() -> Iterator[None]:
    """For looking at the builtins as cells find them, or setting them, within `own_builtins`."""
    if not _aside:
        yield
        return
    _put_back(_aside[0])
    try:
        yield
    finally:
        _aside[0] = _set_aside()


def _set_aside() -> dict[str, object]:
    own = vars(BUILTINS)
    replaced = {name: _live.get(name, _ABSENT) for name in own if _live.get(name, _ABSENT) is not own[name]}
    _live.update((name, own[name]) for name in replaced)
    return replaced


def _put_back(replaced: Mapping[str, object]) -> None:
    for name, value in replaced.items():
        if value is _ABSENT:
            _live.pop(name, None)
        else:
            _live[name] = value


def keep_library() -> None:
    """Makes what Cenote uses of the standard library work on the builtins of now."""
    for module in (contextlib, pathlib, posixpath, _weakrefset):
        _keep_builtins(module)
    for module in (dataclasses, difflib, functools):
        _keep_functions(module)


def _keep_builtins(module: ModuleType) -> None:
    """Makes the methods of a module's classes use the builtins of now, for all who have imported these classes, and
    its private functions. Public functions stay the objects that others have imported, but for `splitroot`, which
    `pathlib` calls.
    """
    for name, value in tuple(vars(module).items()):
        if (
            (name.startswith("_") or name == "splitroot")
            and isinstance(value, FunctionType)
            and value.__globals__ is vars(module)
        ):
            vars(module)[name] = _keeping(value)
    for kind in {base for each in vars(module).values() if isinstance(each, type) for base in each.__mro__}:
        if f"{kind.__module__}.".startswith(f"{module.__name__}."):
            for name, value in tuple(vars(kind).items()):
                if (kept := _keeping(value)) is not value:
                    setattr(kind, name, kept)


def _keep_functions(module: ModuleType) -> None:
    """Makes public functions of a module use the builtins of now, as globals of that module: these functions stay the
    objects that others have imported.
    """
    table, own = vars(module), vars(BUILTINS)
    functions = [
        each for each in table.values() if isinstance(each, FunctionType) and each.__globals__ is table
    ]
    used = {name for function in functions for name in function.__code__.co_names}
    table.update((name, own[name]) for name in (used & own.keys()) - table.keys())


def _keeping(value: object) -> object:
    if isinstance(value, FunctionType):
        names = value.__globals__
        names["__builtins__"] = BUILTINS  # read when a function is made
        made = FunctionType(value.__code__, names, value.__name__, value.__defaults__, value.__closure__)
        made.__kwdefaults__, made.__qualname__ = value.__kwdefaults__, value.__qualname__
        made.__doc__, made.__module__ = value.__doc__, value.__module__
        made.__annotations__ = value.__annotations__
        vars(made).update(vars(value))
        return made
    if isinstance(value, staticmethod | classmethod):
        kept: Any = _keeping(value.__func__)
        return type(value)(kept)
    if type(value) is property:
        get, put, remove = (cast("Any", _keeping(getattr(value, each))) for each in _PROPERTY)
        return property(get, put, remove, value.__doc__)
    return value
