"""Modules, and functions and classes of them, as imports bind them: told by where they are.

Nothing has been set on a module since the copy, or nothing would be told; what lies in one under a name is the same
object there.
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

Told = tuple[str, str]
"""Dotted name of the module; name in it, empty for the module itself."""

_FROM_MODULES: Final = frozenset((FunctionType, BuiltinFunctionType, type))

_modules = sys.modules
_get = object.__getattribute__


def told_of(value: Any) -> Told | None:
    """None for anything else, and for what a module makes up when it is asked for it."""
    if type(value) is ModuleType:
        dotted = _get(value, "__dict__").get("__name__")
        told: Told | None = (dotted, "") if type(dotted) is str else None
    elif type(value) in _FROM_MODULES:
        home, name = value.__module__, value.__name__
        told = (home, name) if type(home) is str and name else None
    else:
        return None
    return told if told is not None and _found(told) is value else None


def rebuilt(told: Told) -> object:
    """Raises KeyError where it is not."""
    dotted, name = told
    module = _modules[dotted]
    return _get(module, "__dict__")[name] if name else module


def _found(told: Told) -> object:
    """In a module that says of everything in it what it is."""
    module = _modules.get(told[0])
    if told[0] == "__main__" or type(module) is not ModuleType:
        return None
    return module if not told[1] else _get(module, "__dict__").get(told[1])
