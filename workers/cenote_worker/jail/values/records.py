"""Classes with the data of a client's classes, but without their code.

The result of a host function may be an object of a class that only the client has. Its class would bring its methods
along, and the values of all names in them. So the client describes the fields, and a class with the same name and the
same fields is made here; see `cenote.runtime.inject.records`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from reprlib import recursive_repr
from typing import Any, Literal, TypeAlias, TypedDict

from cloudpickle import cloudpickle

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

RecordKind: TypeAlias = Literal["plain", "data", "model", "tuple", "enum"]
Default: TypeAlias = tuple[Literal["none", "value", "factory", "elsewhere"], Any]
"""Of a field: none, a value, a factory, or a default that only the client has."""


class RecordField(TypedDict):
    """settings: those of `dataclasses.field`, or of `pydantic.Field`."""

    name: str
    annotation: Any
    default: Default
    settings: dict[str, Any]


class RecordSpec(TypedDict):
    """A class's description. bases: those that a jail can import. members: of an Enum. settings: of its kind."""

    kind: RecordKind
    name: str
    qualname: str
    module: str
    bases: tuple[type, ...]
    fields: list[RecordField]
    members: list[tuple[str, Any]]
    settings: dict[str, Any]


def make_record(identity: str, spec: RecordSpec) -> type:
    """The class for an identity, the same in this process and in those that restore its state."""
    known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity)
    if isinstance(known, type):
        return known
    made = _MAKERS[spec["kind"]](spec)
    made.__module__, made.__qualname__ = spec["module"], spec["qualname"]
    tracked: type = cloudpickle._lookup_class_or_track(identity, made)
    return tracked


def new_record(cls: type, *content: object) -> object:
    """An instance without its fields. content: arguments for a class like `str` or an exception."""
    return cls.__new__(cls, *content)


def new_tuple(cls: type[tuple[Any, ...]], elements: tuple[Any, ...]) -> object:
    """A named tuple would otherwise take its fields one by one."""
    return tuple.__new__(cls, elements)


def set_fields(record: object, fields: Mapping[str, object]) -> None:
    """Sets fields, also those of a frozen record."""
    for name, value in fields.items():
        object.__setattr__(record, name, value)


def set_model_fields(record: Any, state: dict[Any, Any]) -> None:
    from pydantic import BaseModel

    BaseModel.__setstate__(record, state)


def fill_set(record: set[object], elements: Iterable[object]) -> None:
    set.update(record, elements)


def enum_member(cls: Any, name: str | None, value: object) -> object:
    """By name; a combination of flags has only a value."""
    return cls(value) if name is None else cls[name]


def itself(cls: type) -> type:
    return cls


# -- how classes are made --


def _plain(spec: RecordSpec) -> type:
    bases = spec["bases"] or (object,)
    body: dict[str, object] = {}
    if not hasattr(bases[0], "__getattr__"):
        body["__getattr__"] = _missing
    if bases == (object,):
        body["__repr__"] = _shown
    kind = type(bases[0])
    return kind(spec["name"], bases, body)


def _missing(record: object, name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(name)
    cls = type(record).__name__
    raise AttributeError(
        f"{cls} has no field {name!r}: what a host function gives is here as data, without the methods of its class "
        f"and its private attributes; by_value=True on the Function in the client would send those",
        name=name,
        obj=record,
    )


@recursive_repr()
def _shown(record: object) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in vars(record).items())
    return f"{type(record).__name__}({fields})"


def _data(spec: RecordSpec) -> type:
    body: dict[str, Any] = {"__annotations__": {each["name"]: each["annotation"] for each in spec["fields"]}}
    for each in spec["fields"]:
        body[each["name"]] = dataclasses.field(**_default(each), **each["settings"])
    body["__getattr__"] = _missing
    body["__module__"] = __name__  # until it is made: generated methods use its module's names
    cls = type(spec["name"], spec["bases"] or (object,), body)
    return dataclasses.dataclass(**spec["settings"])(cls)


def _default(field: RecordField) -> dict[str, Any]:
    kind, value = field["default"]
    if kind == "value":
        is_constant = type(value).__hash__ is not None
        return {"default": value} if is_constant else {"default_factory": partial(deepcopy, value)}
    if kind == "factory":
        return {"default_factory": value}
    return {} if kind == "none" else {"default_factory": _elsewhere}


def _elsewhere() -> object:
    raise TypeError("the default of this field is in the client; give it a value")


def _model(spec: RecordSpec) -> type:
    import pydantic

    base: Any = pydantic.RootModel if spec["settings"].get("root") else None
    config = None if base else spec["settings"]["config"]
    fields: dict[str, Any] = {
        each["name"]: (each["annotation"], pydantic.Field(**_default(each), **each["settings"]))
        for each in spec["fields"]
    }
    make: Callable[..., Any] = pydantic.create_model
    made: type = make(spec["name"], __base__=base, __config__=config, __module__=__name__, **fields)
    # Otherwise a copy of the class would take this from the calling frame, with all its variables.
    made.__pydantic_parent_namespace__ = {}  # type: ignore[attr-defined]
    return made


def _tuple(spec: RecordSpec) -> type:
    names = [each["name"] for each in spec["fields"]]
    defaults: list[object] = []
    for kind, value in reversed([each["default"] for each in spec["fields"]]):
        if kind != "value":  # nor can a field in front of one that must be given have a default
            break
        defaults.insert(0, value)
    return namedtuple(spec["name"], names, defaults=defaults)


def _enum(spec: RecordSpec) -> type:
    make: Any = next(base for base in spec["bases"] if issubclass(base, enum.Enum))
    kind = next((base for base in spec["bases"] if not issubclass(base, enum.Enum)), None)
    if kind is not None and not all(isinstance(value, kind) for _, value in spec["members"]):
        kind = None  # how its members are made from their values is code
    made: type = make(
        spec["name"], spec["members"], module=spec["module"], qualname=spec["qualname"], type=kind
    )
    return made


_MAKERS: Mapping[RecordKind, Callable[[RecordSpec], type]] = {
    "plain": _plain,
    "data": _data,
    "model": _model,
    "tuple": _tuple,
    "enum": _enum,
}
