"""Descriptions of variables: type, shape, size and one short line, at a cost that does not grow with the values.

The line names columns of a frame, keys of a dict, the signature of a function, fields of a class. No special method
of a user's class is called: lengths and sizes come from the built-in bases and from the classes that well-known
libraries export, everything else from dictionaries of classes and instances.
"""

from __future__ import annotations

import enum
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from cenote_proto.scalars import utf8_text
from cenote_worker.execution.results import VariableInfo
from cenote_worker.execution.trace import ValueKind
from cenote_worker.jail.rendering.bounded_text import (
    bases,
    bounded_repr,
    bounded_str,
    module_name,
    shorten,
    type_name,
)
from cenote_worker.jail.rendering.signatures import signature_text
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SAMPLE = 1_000
"""Items of a list whose types are looked at."""

_SHOWN = 24
"""Columns, keys and fields that are shown."""

_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__


def describe_value(value: object) -> str:
    """Empty when there is no short description."""
    cls = type(value)
    lines = bases(cls)
    if cls in (FunctionType, MethodType, BuiltinFunctionType):
        return signature_text(value)
    if type in lines:
        return describe_class(value)  # type: ignore[arg-type]
    if dict in lines:
        return _keys(value)  # type: ignore[arg-type]
    if list in lines or tuple in lines:
        return _elements(value, cls)  # type: ignore[arg-type]
    if cls in (set, frozenset):
        return _element_types(value)  # type: ignore[arg-type]
    return _fields_of(value, lines)


def describe_class(cls: type) -> str:
    """Fields of a dataclass, model or annotated class; members of an Enum; else the public methods."""
    members: Mapping[str, object] = _class_dict(cls)
    for key in ("__dataclass_fields__", "__pydantic_fields__", "_member_map_"):
        if isinstance(fields := members.get(key), dict):
            return _names(fields)
    annotations = members.get("__annotations__")
    if isinstance(annotations, dict) and annotations:
        return _names(annotations)
    return _names(name for name, member in members.items() if type(member) is FunctionType)


def describe_library_value(value: object) -> tuple[tuple[int, ...] | None, int, str]:
    """Shape, bytes and description of a value whose class numpy, pandas, polars or pyarrow exports."""
    return library_shape(value), _buffer_size(value), _library_text(value)


def library_shape(value: object) -> tuple[int, ...] | None:
    """The shape of a value of such a class."""
    shape = getattr(value, "shape", None)
    return tuple(int(length) for length in shape) if isinstance(shape, tuple) else None


def _buffer_size(value: object) -> int:
    if type_name(type(value)) == "DataFrame" and hasattr(value, "memory_usage"):
        return int(value.memory_usage(index=True, deep=False).sum())
    if hasattr(value, "estimated_size"):
        return int(value.estimated_size())
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else object.__sizeof__(value)


def _library_text(value: object) -> str:
    columns, dtypes = getattr(value, "columns", None), getattr(value, "dtypes", None)
    if columns is not None and dtypes is not None:
        pairs = zip(islice(columns, _SHOWN), islice(dtypes, _SHOWN), strict=False)
        text = ", ".join(f"{bounded_str(name, 60)} {bounded_str(dtype, 30)}" for name, dtype in pairs)
        return text + _rest(len(columns))
    if (schema := getattr(value, "schema", None)) is not None and hasattr(schema, "names"):
        pairs = zip(schema.names, schema.types, strict=False)
        return ", ".join(f"{name} {dtype}" for name, dtype in islice(pairs, _SHOWN)) + _rest(
            len(schema.names)
        )
    dtype, name = getattr(value, "dtype", ""), getattr(value, "name", None)
    return f"{bounded_str(dtype, 60)} {bounded_repr(name, 60) if name is not None else ''}".strip()


def _rest(count: int) -> str:
    return f", ... {count - _SHOWN:,} more" if count > _SHOWN else ""


def _keys(value: dict[object, object]) -> str:
    keys = [_key(key) for key in islice(dict.__iter__(value), _SHOWN)]
    return f"keys {', '.join(keys)}{_rest(dict.__len__(value))}" if keys else "empty"


def _key(key: object) -> str:
    """A key as text; an instance of a user's class by its class alone, since its repr is code."""
    if type(key) in (str, int, float, bool, bytes, type(None)):
        return bounded_repr(key, 60)
    if type(key) is tuple:
        return f"({', '.join(_key(part) for part in key[:4])}{', ...' if len(key) > 4 else ''})"
    return f"<{type_name(type(key))}>"


def _elements(value: list[object] | tuple[object, ...], cls: type) -> str:
    if (fields := _class_dict(cls).get("_fields")) and type(fields) is tuple:
        return _names(name for name in fields if type(name) is str)
    base = list if list in bases(cls) else tuple
    sample = list(islice(base.__iter__(value), _SAMPLE))  # type: ignore[arg-type]
    text = _element_types(sample)
    if sample and all(type(item) is dict for item in sample):
        text += f" with {_keys(sample[0])}"  # type: ignore[arg-type]
    return text


def _element_types(values: Iterable[object]) -> str:
    names = dict.fromkeys(type_name(type(value)) for value in islice(values, _SAMPLE))
    return f"of {', '.join(islice(names, 6))}" if names else "empty"


def _fields_of(value: object, lines: tuple[type, ...]) -> str:
    if enum.Enum in lines:
        return bounded_str(_get(value, "_name_"), 100)
    for cls in lines:
        fields = _class_dict(cls).get("__dataclass_fields__")
        if isinstance(fields, dict):
            return _names(fields)
    try:
        attributes = _get(value, "__dict__")
    except AttributeError:
        return ""
    return _names(attributes) if type(attributes) is dict else ""


def _names(names: Iterable[str]) -> str:
    public = [name for name in names if type(name) is str and not name.startswith("_")]
    return ", ".join(public[:_SHOWN]) + _rest(len(public))


DESCRIPTION_CHARS = 400
_LIBRARIES = frozenset(("numpy", "pandas", "polars", "pyarrow"))
_SIZED = (list, tuple, dict, set, frozenset, deque, range, bytes, bytearray, str)

_TEXTS = (str, bytes, bytearray)

_modules = sys.modules
_object_size = object.__sizeof__


def user_names(namespace: Mapping[str, object]) -> list[str]:
    """Names that a user would call variables, in order: no modules, no names with an underscore."""
    return [name for name, value in list(namespace.items()) if is_user_variable(name, value)]


def is_user_variable(name: object, value: object) -> bool:
    return type(name) is str and name[:1] != "_" and ModuleType not in bases(type(value))


def describe_variable(name: str, value: object) -> VariableInfo:
    """Type, shape, size and a short line about one value. Never raises."""
    try:
        shape, size, description = _measure(value)
    except BaseException:  # a class that imitates a library's, or a value that changes meanwhile
        shape, size, description = None, 0, ""
    return VariableInfo(
        name=utf8_text(name),
        type=qualified_name(type(value)),
        shape=shape,
        size=size,
        description=shorten(description, DESCRIPTION_CHARS),
    )


def kind_of_value(value: object) -> ValueKind:
    """Its type, and its shape if that is cheap to get. Never raises."""
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
    """The length of a collection; None for text and bytes, which have no shape."""
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
