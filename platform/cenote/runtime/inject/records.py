"""Objects of the client's classes as data: how they are pickled for a jail, with their fields and without any code.

A class that is pickled by value takes its methods along, and with them the value of each name that they mention: a
key, a connection. That is what a user wants who injects an object, and not what a user expects who returns one from a
host function. So the result of a host function goes as data, unless `by_value=True` says otherwise.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import hashlib
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from cenote.runtime.inject.annotations import classes_in, is_typed_dict, render
from cenote_security.values.instances import read_state
from cenote_security.values.shapes import Shape
from cenote_worker.jail.values.records import (
    Default,
    RecordField,
    RecordSpec,
    enum_member,
    fill_set,
    make_record,
    new_record,
    new_tuple,
    set_fields,
    set_model_fields,
)

Reduction = tuple[Any, ...]
IsClients = Callable[[Any], bool]
"""Whether a class or a function is the client's own, and was not sent by value before."""

BY_VALUE: Final = (
    "by_value=True on its Function or Variable sends results whole, with all that their classes mention"
)

_LAYOUT: Mapping[type, Callable[[Any], object]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: lambda value: complex(value.real, value.imag),
    bytes: lambda value: bytes(memoryview(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
"""How the content of an instance is read, past what its class makes of it."""

_NO_FIELDS = frozenset({object, typing.Generic, typing.Protocol, abc.ABC})
"""Bases that have nothing of their own in an instance."""

_PARAMETERS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen")
_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
_SIMPLE = (type(None), bool, int, float, complex, str, bytes)


class CannotBeDataError(TypeError):
    """What a host function gave is not data of a class of the client's."""


def refuse_code(thing: Any) -> None:
    """Raises CannotBeDataError for a function or module of the client's."""
    kind = "module" if isinstance(thing, types.ModuleType) else "function"
    name = getattr(thing, "__qualname__", thing.__name__)
    raise CannotBeDataError(f"`{name}` is a {kind} of the client's, and code is no data; {BY_VALUE}")


def reduced_class(cls: type, is_clients: IsClients) -> Reduction | None:
    """How to pickle the class as one that holds the same fields; None for a class that has no code."""
    if is_typed_dict(cls):
        return None
    spec = _spec(cls, is_clients)
    return make_record, (_identity(spec), spec)


def reducer_of(cls: Any, is_clients: IsClients) -> Callable[[Any], Reduction]:
    """How to pickle instances of a class of the client's. Raises CannotBeDataError where they cannot be data."""
    if issubclass(cls, enum.Enum):
        return _reduced_member
    if _is_model(cls):
        return _reduced_model
    base = _nearest(cls, is_clients)
    fields = _fields_of(cls, is_clients)
    if issubclass(cls, BaseException):
        return lambda obj: (new_record, (cls, *obj.args), fields(obj), None, None, set_fields)
    if base is object:
        return lambda obj: (new_record, (cls,), fields(obj), None, None, set_fields)
    if base is tuple:
        return lambda obj: (new_tuple, (cls, tuple(tuple.__iter__(obj))), fields(obj), None, None, set_fields)
    if base is list:
        return lambda obj: (new_record, (cls,), fields(obj), list.__iter__(obj), None, set_fields)
    if base is dict:
        return lambda obj: (new_record, (cls,), fields(obj), None, iter(dict.items(obj)), set_fields)
    if base is set:
        return lambda obj: (new_record, (cls,), list(set.__iter__(obj)), None, None, fill_set)
    if base in _LAYOUT:
        content = _LAYOUT[base]
        return lambda obj: (new_record, (cls, content(obj)), fields(obj), None, None, set_fields)
    if _is_overridden(cls, _PICKLING, is_clients):
        raise CannotBeDataError(
            f"{cls.__qualname__} has a way of its own to be pickled, which is code; {BY_VALUE}"
        )
    # As the class of a library that it is derived from is pickled: a frame, an array.
    return lambda obj: obj.__reduce_ex__(5)


# -- instances --


def _reduced_member(obj: Any) -> Reduction:
    cls = type(obj)
    return enum_member, (cls, obj._name_ if obj._name_ in cls.__members__ else None, obj._value_)


def _reduced_model(obj: Any) -> Reduction:
    cls = type(obj)
    fields = cls.model_fields
    state = {
        "__dict__": {name: value for name, value in obj.__dict__.items() if name in fields},
        "__pydantic_extra__": obj.__pydantic_extra__,
        "__pydantic_fields_set__": set(obj.__pydantic_fields_set__),
        "__pydantic_private__": None,
    }
    return new_record, (cls,), state, None, None, set_model_fields


def _fields_of(cls: Any, is_clients: IsClients) -> Callable[[Any], dict[str, Any]]:
    """What gives the fields of an instance: those that its class declares, and its public attributes."""
    says_itself = _is_overridden(cls, ("__getstate__",), is_clients)
    slots = {
        name: descriptor
        for base in reversed(cls.__mro__)
        for name, descriptor in vars(base).items()
        if type(descriptor) is types.MemberDescriptorType
    }
    shape = Shape(cls=cls, kind="plain", slots=slots)
    known: dict[object, bool] = dict.fromkeys(getattr(cls, "__dataclass_fields__", ()), True)

    def fields(obj: Any) -> dict[str, Any]:
        state = obj.__getstate__() if says_itself else None
        if not isinstance(state, dict):  # such as that of a dataclass with slots
            state = read_state(obj, shape)
        for name in state:
            if name not in known:
                known[name] = _is_public(cls, name)
        return {name: value for name, value in state.items() if known[name]}

    return fields


def _is_public(cls: type, name: object) -> bool:
    """A value that a property remembers is none of the object's own."""
    if not isinstance(name, str) or name.startswith("_"):
        return False
    return not isinstance(getattr(cls, name, None), cached_property)


def _is_overridden(cls: type, names: tuple[str, ...], is_clients: IsClients) -> bool:
    return any(name in vars(base) for base in cls.__mro__ if is_clients(base) for name in names)


def _is_data(cls: Any) -> bool:
    """Whether it is made of the fields of a dataclass; a subclass may be made otherwise."""
    made = next((base for base in cls.__mro__ if "__dataclass_params__" in vars(base)), None)
    return made is not None and cls.__init__ is made.__init__


def _is_model(cls: Any) -> bool:
    return hasattr(cls, "__pydantic_core_schema__") and hasattr(cls, "model_fields")


# -- classes --


def _nearest(cls: type, is_clients: IsClients) -> type:
    """The class whose way of being pickled it has."""
    return next(
        base for base in cls.__mro__ if base is object or not (is_clients(base) or base in _NO_FIELDS)
    )


def _bases(cls: type, is_clients: IsClients) -> tuple[type, ...]:
    """The classes that it is derived from and that a jail has, each once."""
    found: list[type] = []
    for base in cls.__mro__:
        if (
            base not in _NO_FIELDS
            and not is_clients(base)
            and not any(issubclass(each, base) for each in found)
        ):
            found.append(base)
    return tuple(found)


def _spec(cls: Any, is_clients: IsClients) -> RecordSpec:
    spec: RecordSpec = {
        "kind": "plain",
        "name": cls.__name__,
        "qualname": cls.__qualname__,
        "module": cls.__module__,
        "bases": _bases(cls, is_clients),
        "fields": [],
        "members": [],
        "settings": {},
    }
    if issubclass(cls, enum.Enum):
        spec["kind"] = "enum"
        spec["members"] = [(name, member._value_) for name, member in cls.__members__.items()]
    elif issubclass(cls, tuple) and hasattr(cls, "_field_defaults"):
        spec["kind"], spec["bases"] = "tuple", ()
        spec["fields"] = [_tuple_field(cls, name) for name in cls._fields]
    elif _is_model(cls):
        spec["kind"], spec["bases"] = "model", ()
        spec["settings"] = _model_settings(cls)
        spec["fields"] = [_model_field(cls, name, is_clients) for name in cls.model_fields]
    elif _is_data(cls) and not spec["bases"]:
        spec["kind"] = "data"
        spec["settings"] = _parameters(cls)
        spec["fields"] = [_data_field(field) for field in dataclasses.fields(cls)]
    return spec


def _parameters(cls: Any) -> dict[str, bool]:
    return {name: getattr(cls.__dataclass_params__, name) for name in _PARAMETERS}


def _identity(spec: RecordSpec) -> str:
    """The same for the same description, in whatever process of the client's."""
    told = (
        *(spec[key] for key in ("kind", "module", "qualname", "settings")),
        [f"{base.__module__}.{base.__qualname__}" for base in spec["bases"]],
        [(each["name"], render(each["annotation"]), _told(*each["default"])) for each in spec["fields"]],
        [(name, _told("value", value)) for name, value in spec["members"]],
    )
    return f"record {hashlib.sha256(repr(told).encode('utf-8', 'backslashreplace')).hexdigest()}"


def _told(kind: str, value: object) -> tuple[str, object]:
    return kind, value if type(value) in _SIMPLE else type(value).__qualname__


def _data_field(field: dataclasses.Field[Any]) -> RecordField:
    settings = {name: getattr(field, name) for name in ("init", "repr", "compare", "hash", "kw_only")}
    default = _default(field.default, field.default_factory, dataclasses.MISSING)
    # As text: an annotation is not evaluated there, and may be of any class.
    return {"name": field.name, "annotation": render(field.type), "default": default, "settings": settings}


def _tuple_field(cls: Any, name: str) -> RecordField:
    missing = object()
    default = _default(cls._field_defaults.get(name, missing), missing, missing)
    return {"name": name, "annotation": "object", "default": default, "settings": {}}


def _model_field(cls: Any, name: str, is_clients: IsClients) -> RecordField:
    from pydantic_core import PydanticUndefined

    info = cls.model_fields[name]
    annotation = info.annotation if _can_go(info.annotation, cls, is_clients) else Any
    factory = PydanticUndefined if info.default_factory is None else info.default_factory
    default = _default(info.default, factory, PydanticUndefined)
    settings = {
        key: value
        for key in ("alias", "validation_alias", "serialization_alias")
        if isinstance(value := getattr(info, key), str)
    }
    return {"name": name, "annotation": annotation, "default": default, "settings": settings}


def _model_settings(cls: Any) -> dict[str, Any]:
    config = {name: value for name, value in cls.model_config.items() if type(value) in _SIMPLE}
    config.update(arbitrary_types_allowed=True, protected_namespaces=())
    return {"config": config, "root": bool(getattr(cls, "__pydantic_root_model__", False))}


def _default(value: object, factory: object, missing: object) -> Default:
    if factory is not missing:
        is_known = isinstance(factory, type) and factory.__module__ == "builtins"
        return ("factory", factory) if is_known else ("elsewhere", None)
    if value is missing:
        return "none", None
    return ("value", value) if _is_simple(value) else ("elsewhere", None)


def _is_simple(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__module__ == "builtins" and all(map(_is_simple, value))
    if type(value) is dict:
        return all(_is_simple(part) for pair in value.items() for part in pair)
    return type(value) in _SIMPLE or isinstance(value, enum.Enum)


def _can_go(annotation: Any, owner: type, is_clients: IsClients) -> bool:
    """Whether the annotation of a field is made of classes, none of which is made of the field's own class."""
    if annotation is Any or annotation is None or annotation is Ellipsis:
        return True
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return all(type(value) in _SIMPLE for value in typing.get_args(annotation))
    if origin is not None:
        known = origin in (typing.Union, types.UnionType) or isinstance(origin, type)
        return known and all(_can_go(part, owner, is_clients) for part in typing.get_args(annotation))
    return isinstance(annotation, type) and not (
        is_clients(annotation) and _leads_to(annotation, owner, set())
    )


def _leads_to(cls: Any, wanted: type, seen: set[type]) -> bool:
    if cls is wanted:
        return True
    if cls in seen:
        return False
    seen.add(cls)
    fields: list[Any] = [info.annotation for info in getattr(cls, "model_fields", {}).values()]
    with suppress(TypeError):
        fields += [each.type for each in dataclasses.fields(cls)]
    return any(_leads_to(part, wanted, seen) for field in fields for part in classes_in(field))
