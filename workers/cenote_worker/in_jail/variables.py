"""What may be said of variables without their values, at a cost that does not grow with them.

No special method of a user's class is called: lengths and sizes come from the built-in bases and from the classes
that well-known libraries export, everything else from dictionaries of classes and instances.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from types import ModuleType

from cenote_proto.scalars import utf8_text
from cenote_worker.in_jail.bounded import bases, module_name, shorten, type_name
from cenote_worker.in_jail.descriptions import describe_library_value, describe_value, library_shape
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.results import VariableInfo
from cenote_worker.trace import ValueKind

__builtins__ = BUILTINS

DESCRIPTION_CHARS = 400
_LIBRARIES = frozenset(("numpy", "pandas", "polars", "pyarrow"))
_SIZED = (list, tuple, dict, set, frozenset, deque, range, bytes, bytearray, str)

_TEXTS = (str, bytes, bytearray)

_modules = sys.modules
_object_size = object.__sizeof__


def user_names(namespace: Mapping[str, object]) -> list[str]:
    """Names that a user would call variables, in order: no modules, nothing that begins with an underscore."""
    return [name for name, value in list(namespace.items()) if is_user_variable(name, value)]


def is_user_variable(name: object, value: object) -> bool:
    return type(name) is str and name[:1] != "_" and ModuleType not in bases(type(value))


def describe_variable(name: str, value: object) -> VariableInfo:
    """Type, shape, size and a short line about one value. Never raises."""
    try:
        shape, size, description = _measure(value)
    except BaseException:  # a class that only pretends to be a library's, or values changing under our feet
        shape, size, description = None, 0, ""
    return VariableInfo(
        name=utf8_text(name),
        type=qualified_name(type(value)),
        shape=shape,
        size=size,
        description=shorten(description, DESCRIPTION_CHARS),
    )


def kind_of_value(value: object) -> ValueKind:
    """Its type, and its shape where that is at hand. Never raises."""
    cls = type(value)
    try:
        shape = library_shape(value) if _is_exported(cls) else _length(value)
    except BaseException:  # as above
        shape = None
    return ValueKind(type=qualified_name(cls), shape=shape)


def describe_variables(namespace: Mapping[str, object]) -> list[VariableInfo]:
    return [describe_variable(name, namespace[name]) for name in user_names(namespace)]


def variable_table(namespace: Mapping[str, object]) -> str:
    """All user variables as lines: name, type, shape, description."""
    lines = []
    for info in describe_variables(namespace):
        shape = f" {info.shape}" if info.shape else ""
        lines.append(f"{info.name}: {info.type}{shape} {info.description}".rstrip())
    return "\n".join(lines) or "no variables"


def qualified_name(cls: type) -> str:
    """`list`, `Point` for a class of the namespace, `pandas.DataFrame` where the package exports it."""
    name, module = type_name(cls), module_name(cls)
    if module in ("builtins", "__main__", ""):
        return utf8_text(name)
    package = module.partition(".")[0]
    return utf8_text(f"{package if _exports(package, cls) else module}.{name}")


def _exports(package: str, cls: type) -> bool:
    module = _modules.get(package)
    return type(module) is ModuleType and module.__dict__.get(type_name(cls)) is cls


def _is_exported(cls: type) -> bool:
    """Whether one of the well-known libraries exports it."""
    package = module_name(cls).partition(".")[0]
    return package in _LIBRARIES and _exports(package, cls)


def _length(value: object) -> tuple[int, ...] | None:
    """Of a collection; what is said of text and bytes is no shape."""
    for base in _SIZED:
        if base in bases(type(value)):
            return None if base in _TEXTS else (_count(value, base),)
    return None


def _count(value: object, base: type) -> int:
    length: int = base.__len__(value)  # type: ignore[attr-defined]
    return length


def _measure(value: object) -> tuple[tuple[int, ...] | None, int, str]:
    cls = type(value)
    if _is_exported(cls):
        return describe_library_value(value)
    for base in _SIZED:
        if base in bases(cls):
            return _measure_sized(value, base)
    size = int.__sizeof__(value) if int in bases(cls) else _object_size(value)
    return None, size, describe_value(value)


def _measure_sized(value: object, base: type) -> tuple[tuple[int, ...] | None, int, str]:
    length = _count(value, base)
    size: int = base.__sizeof__(value)  # type: ignore[call-arg]
    if base in _TEXTS:
        unit = "characters" if base is str else "bytes"
        return None, size, f"{length:,} {unit}"
    return (length,), size, describe_value(value)
