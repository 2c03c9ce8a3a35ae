"""State in modules of libraries, as far as Python shows it: a call into a library may have changed it.

No name shows that a function such as `calendar.setfirstweekday` or `logging.addLevelName` sets anything. So the
modules whose functions a step calls are compared before and after: the objects that their names have, and those in
containers and plain instances among these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from cenote_worker.jail.tracking.descriptions.classes import attributes, is_class, is_module, module_of, mro
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

LARGE: Final = 2_000
"""Items of a container of a library from which on it is not compared: tables of that size are no settings."""

KEEPING_CACHES: Final = frozenset(
    ("", "__main__", "_collections_abc", "abc", "ast", "asyncio", "builtins", "cenote_worker", "collections",
     "concurrent", "contextlib", "copy", "dataclasses", "datetime", "duckdb", "enum", "functools", "gc", "glob",
     "hashlib", "importlib", "inspect", "io", "itertools", "json", "math", "multiprocessing", "numpy", "operator",
     "os", "pandas", "pathlib", "pickle", "polars", "posixpath", "pyarrow", "pydantic", "random", "re", "scipy",
     "shutil", "sklearn", "statistics", "string", "struct", "subprocess", "sys", "tempfile", "textwrap", "threading",
     "time", "tokenize", "traceback", "types", "typing", "typing_extensions", "unittest", "uuid", "warnings",
     "weakref", "zipfile", "zoneinfo", "posix", "_duckdb", "_io", "_thread", "matplotlib", "torch")
)  # fmt: skip
"""Libraries whose modules change in ways that no program sees, have no settings, or are handled elsewhere."""

_WITH_TABLES: Final = frozenset(("pandas.tseries.holiday",))
"""Modules of those libraries that record which classes exist."""

_OF_OTHERS: Final = frozenset(("cenote_worker", "matplotlib"))
"""Their objects are the jail's own, or change with use and are handled as figures."""

_FIXED: Final = frozenset(
    (FunctionType, BuiltinFunctionType, ModuleType, MethodType, type, str, int, float, bool)
)
_TABLES: Final = frozenset((dict, list, set))
_modules = sys.modules
_dict_of = object.__getattribute__

Insides = Mapping[str, list[object]]
"""By the name of an attribute: its value, and its parts."""


def homes(found: Iterable[object]) -> Iterator[ModuleType]:
    """The modules that are among these values, or that classes and functions among them belong to."""
    for value in found:
        module = value if isinstance(value, ModuleType) and is_module(value) else _home(value)
        if type(module) is ModuleType and (
            _top(module) not in KEEPING_CACHES or module.__name__ in _WITH_TABLES
        ):
            yield module


def insides(module: ModuleType) -> Insides:
    table = vars(module).copy()
    return {
        key: [value, *(_tables_of(value) if is_class(value) else parts_of(value))]
        for key, value in table.items()
        if key[:2] != "__"
    }


def _tables_of(value: Any) -> Iterator[object]:
    """Containers that are attributes of a class, and their items: derived classes may be recorded there."""
    for held in list(attributes(value).values()):
        if type(held) in _TABLES:
            yield held
            yield from items_of(held)


def different(before: Insides, after: Insides) -> Iterator[str]:
    """Without new modules, classes and functions: libraries import late."""
    for key in before.keys() | after.keys():
        was, now = before.get(key), after.get(key)
        if was is None and now is not None and type(now[0]) in (ModuleType, FunctionType, type):
            continue
        if was is None or now is None or len(was) != len(now) or not all(map(is_, was, now)):
            yield key


def is_plain(value: Any, depth: int = 3) -> bool:
    """Whether a picture of it stays the same while it is unchanged: all of it can be inspected."""
    if value is None or type(value) in _FIXED or is_class(value):
        return True
    parts = parts_of(value)
    seen = bool(parts) or is_container(value)
    return seen and depth > 0 and all(is_plain(part, depth - 1) for part in parts)


def is_part(value: Any) -> bool:
    """Whether a library may use it to store something: a container, or an instance with a dictionary."""
    cls = type(value)
    if cls in _FIXED or is_class(value) or ModuleType in mro(cls) or "_member_map_" in attributes(cls):
        return False
    if module_of(cls).partition(".")[0] in _OF_OTHERS:
        return False
    return is_container(value) or bool(_attributes(value))


def parts_of(value: Any, most: int = LARGE) -> list[object]:
    """The parts of a container, or of an instance with a dictionary."""
    if type(value) in _FIXED or is_class(value):
        return []
    return items_of(value, most) if is_container(value) else _attributes(value)


def is_container(value: object) -> bool:
    return not {dict, list, set}.isdisjoint(mro(type(value)))


def items_of(value: Any, most: int = LARGE) -> list[object]:
    """The items of a container; empty for a larger one."""
    bases = mro(type(value))
    if dict in bases:
        return [*dict.keys(value), *dict.values(value)] if dict.__len__(value) <= most else []
    kind: Any = list if list in bases else set
    return list(kind.__iter__(value)) if kind.__len__(value) <= most else []


def _attributes(value: object) -> list[object]:
    try:
        table = _dict_of(value, "__dict__")
    except Exception:  # there is none, or the class's own raises an error
        return []
    return [*table.keys(), *table.values()] if type(table) is dict else []


def _home(value: object) -> object:
    if value is not None and is_class(value):
        return _modules.get(type.__getattribute__(value, "__module__"))
    if type(value) in (FunctionType, BuiltinFunctionType):
        home = getattr(value, "__module__", None)
        return _modules.get(home) if type(home) is str else None
    return None


def _top(module: ModuleType) -> str:
    return str(vars(module).get("__name__", "")).partition(".")[0]
