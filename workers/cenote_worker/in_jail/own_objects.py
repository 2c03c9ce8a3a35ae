"""Objects that libraries have for themselves, and that a user's name may lead to: `matplotlib.rcParams`, a parser's
defaults, the generator that numpy draws from.

A copy of such an object has no effect where the library looks. So the name leads to the library's own one again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from cenote_worker.in_jail.instances_kept import is_of_the_user
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules
_NONE_THERE: Final = frozenset(
    ("builtins", "types", "collections", "functools", "re", "datetime", "pathlib", "cenote_worker",
     "cenote_security", "cenote_proto", "pandas", "enum", "typing", "ast", "weakref", "_io", "io", "logging",
     "__main__")
)  # fmt: skip
"""Modules whose objects are values like any other, or are known otherwise."""

_KNOWN: Final = frozenset(("matplotlib", "numpy", "decimal", "random", "torch", "threading"))
"""Libraries whose own objects come as they are set, which is hidden state, or are bound to their process."""


def is_known(kind: type) -> bool:
    """Whether what is in such an object of the library's comes otherwise."""
    return kind.__module__.partition(".")[0] in _KNOWN


def own_objects(kind: type) -> dict[int, str]:
    """Instances of a class that the module which defines it has, or a package around that: by their ids, where."""
    home = kind.__module__
    if (
        home in _NONE_THERE
        or home not in _modules
        or is_of_the_user(kind)
        or issubclass(kind, type | ModuleType)
    ):
        return {}
    if _is_number(kind):
        return {}
    found = dict[int, str]()
    while home:
        module = _modules.get(home)
        if type(module) is ModuleType:
            found = {
                id(value): f"{home}:{path}" for path, value in _in(module) if type(value) is kind
            } | found
        home = home.rpartition(".")[0]
    return found


def own_object(told: str, kind: Any = None) -> object:
    """As `own_objects` says where. kind: its class, where a library may make it only when it is needed: it is made
    here then. Raises KeyError, and ImportError."""
    home, _, path = told.partition(":")
    *around, key = path.split(".")
    holder: Any = importlib.import_module(home)
    for each in around:
        holder = vars(holder)[each]
    if kind is None:
        found: object = vars(holder)[key]
        return found
    if type(vars(holder).get(key)) is not kind:
        vars(holder)[key] = object.__new__(kind)
    return vars(holder)[key]


def fill_own(obj: Any, table: dict[str, object]) -> None:
    """What the library's object had in the other process."""
    vars(obj).update(table)


def _in(module: ModuleType) -> Iterator[tuple[str, object]]:
    """What it has, and what its instances have."""
    for key, value in list(vars(module).items()):
        yield key, value
        if table := _table(value):
            yield from ((f"{key}.{inner}", held) for inner, held in list(table.items()) if type(inner) is str)


def _table(value: Any) -> dict[Any, object] | None:
    if isinstance(value, type | ModuleType) or callable(value):
        return None
    try:
        table = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return table if type(table) is dict else None


def _is_number(kind: type) -> bool:
    numpy: Any = _modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.generic | numpy.ndarray | numpy.dtype)
