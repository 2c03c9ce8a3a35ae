"""The interpreter's builtins as they were before any cell ran.

A cell may assign to `builtins.len`, `builtins.repr` and so on, and such a change lasts, as in ordinary Python.
A function finds its builtins through the `__builtins__` of the module it was defined in, so a module that sets
`__builtins__ = BUILTINS` above its functions keeps working on the real ones. Modules of the standard library that
such functions use get the same from `keep_builtins`.
"""

from __future__ import annotations

import builtins
from types import FunctionType, ModuleType
from typing import Any, Final, cast

__all__ = ["BUILTINS", "keep_builtins"]


BUILTINS = ModuleType("builtins")
vars(BUILTINS).update(vars(builtins))

_PROPERTY: Final = ("fget", "fset", "fdel")


def keep_builtins(module: ModuleType) -> None:
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
