"""One short line about a value: columns of a frame, keys of a dict, signature of a function, fields of a class."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType

from cenote_worker.in_jail.bounded import bases, bounded_repr, bounded_str, type_name
from cenote_worker.in_jail.callables import signature_text
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_SAMPLE = 1_000
"""Items of a list that are looked at for their types."""

_SHOWN = 24
"""Columns, keys and fields that are named."""

_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__


def describe_value(value: object) -> str:
    """Empty when there is nothing short to say."""
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
    """Of a value of such a class."""
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
    """A key as text; an instance of somebody's class by its class alone, since its repr is code."""
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
