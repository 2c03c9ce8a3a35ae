"""Instances of classes that the reader named: enum members, named tuples, dataclasses, plain objects, models.

Exceptions are plain data: a class named by a jail is never raised, nor even looked up, outside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.libraries import pydantic
from cenote_security.values.node import Foreign, Immutable, Kind, Mutable, Node, NodeParts
from cenote_security.values.shapes import Shape, class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


_LONGEST_MESSAGE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionRecord:
    """What an exception object becomes when it leaves its jail: a name and a text, nothing to raise.

    type: qualified class name, without `builtins.`. message: its text, cut at 10,000 characters.
    """

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def write_exception(_encoder: Encoder, value: Foreign) -> Node:
    return ["exception", [class_name(type(value))[: expect.MAX_NAME], str(value)[:_LONGEST_MESSAGE]]]


def _build_exception(parts: NodeParts) -> ExceptionRecord:
    name, message = expect.items(parts.meta, 2)
    return ExceptionRecord(type=expect.text(name), message=expect.text(message, _LONGEST_MESSAGE))


EXCEPTION_KINDS: dict[str, Kind] = {"exception": Immutable(build=_build_exception, runs=0)}


_FLAG_BITS = 64  # a larger value makes Flag walk over its bits for long
_METHODS = (FunctionType, property, classmethod, staticmethod)
_BOOKKEEPING = frozenset({"__dict__", "__weakref__", "__orig_class__"})
"""What Python itself keeps on instances; it is remade or not needed."""


def write(encoder: Encoder, value: object) -> Node:
    """The node of an instance of any class that no other writer knows.

    Raises UnsafeValueError when its class is not one that can be taken apart without running its code.
    """
    if issubclass(type(value), BaseException):
        return write_exception(encoder, value)
    shape = encoder.shape(type(value))
    match shape.kind:
        case "enum" | "flag":
            return _write_member(value, shape)
        case "tuple":
            return _write_tuple(encoder, value, shape)
        case "model":
            return pydantic.write(encoder, value, shape)
        case "data" | "plain":
            return _write_instance(encoder, value, shape)


def _write_member(value: Foreign, shape: Shape) -> Node:
    name = value.name
    if shape.kind == "enum" or shape.cls.__members__.get(name) is value:  # type: ignore[attr-defined]
        return ["member", [shape.reference, name]]
    return ["flag", [shape.reference, int(value.value)]]


def _build_member(parts: NodeParts) -> object:
    reference, name = expect.items(parts.meta, 2)
    shape = parts.source.shape(reference, "enum", "flag")
    members: Mapping[str, object] = shape.cls.__members__  # type: ignore[attr-defined]
    found = members.get(expect.text(name))
    return expect.malformed(f"{shape.name} has no such member") if found is None else found


def _build_flag(parts: NodeParts) -> object:
    reference, value = expect.items(parts.meta, 2)
    shape = parts.source.shape(reference, "flag")
    return shape.cls(expect.integer(value, -(2**_FLAG_BITS), 2**_FLAG_BITS))


def _write_tuple(encoder: Encoder, value: Foreign, shape: Shape) -> Node:
    if getattr(value, "__dict__", None):
        raise UnsafeValueError(shape.name, "a named tuple with attributes of its own")
    return ["named", shape.reference, encoder.run(list(tuple.__iter__(value)))]


def _build_tuple(parts: NodeParts) -> object:
    shape = parts.source.shape(parts.meta, "tuple")
    if len(parts.runs[0]) != len(shape.fields):
        expect.malformed(f"{shape.name} has {len(shape.fields)} fields")
    return tuple.__new__(shape.cls, parts.runs[0])


def _write_instance(encoder: Encoder, value: object, shape: Shape) -> Node:
    state = read_state(value, shape)
    if shape.kind == "data":
        state = _only_fields(state, shape)
    return ["instance", [shape.reference, list(state)], encoder.run(list(state.values()))]


def read_state(value: object, shape: Shape) -> dict[str, object]:
    """Attributes by name, from the instance's own dict and slots, past `__getattribute__` and properties."""
    state: dict[str, object] = {}
    for name, descriptor in shape.slots.items():
        if name not in _BOOKKEEPING:
            try:
                state[name] = descriptor.__get__(value, shape.cls)
            except AttributeError:
                continue  # a slot that was never set
    with suppress(AttributeError):  # only slots
        state.update(object.__getattribute__(value, "__dict__"))
    return {name: item for name, item in state.items() if name not in _BOOKKEEPING}


def _only_fields(state: Mapping[str, object], shape: Shape) -> dict[str, object]:
    missing = set(shape.fields) - set(state)
    extra = [name for name in state if name not in shape.fields and not _is_cached(shape.cls, name)]
    if missing or extra:
        names = ", ".join([*(f"{name} is not set" for name in sorted(missing)),
                           *(f"{name} is no field" for name in sorted(extra))])  # fmt: skip
        raise UnsafeValueError(shape.name, f"{names:.200}")
    return {name: state[name] for name in shape.fields}


def _is_cached(cls: type, name: str) -> bool:
    return isinstance(getattr(cls, name, None), cached_property)


def _instance_shell(parts: NodeParts) -> object:
    reference, _names = expect.items(parts.meta, 2)
    shape = parts.source.shape(reference, "data", "plain")
    try:
        return object.__new__(shape.cls)
    except TypeError:
        raise UnsafeValueError(shape.name, "its instances are not made by Python code alone") from None


def _fill_instance(shell: object, parts: NodeParts) -> None:
    reference, raw_names = expect.items(parts.meta, 2)
    shape = parts.source.shape(reference, "data", "plain")
    names = expect.names(raw_names)
    _check_names(names, shape)
    set_state(shell, shape, zip(names, parts.runs[0], strict=True))


def set_state(shell: object, shape: Shape, state: Iterable[tuple[str, object]]) -> None:
    """Set attributes in the instance's slots and dict, past `__setattr__`, properties and frozenness."""
    own: dict[str, object] = {}
    for name, value in state:
        if name in shape.slots:
            shape.slots[name].__set__(shell, value)
        else:
            own[name] = value
    if own:
        object.__getattribute__(shell, "__dict__").update(own)


def _check_names(names: list[str], shape: Shape) -> None:
    if shape.kind == "data" and set(names) != set(shape.fields):
        expect.malformed(f"the fields of {shape.name} are {', '.join(shape.fields):.300}")
    for name in names:
        if name in _BOOKKEEPING or (name.startswith("__") and name.endswith("__")):
            expect.malformed(f"{shape.name} is given a special attribute")
        if shape.kind == "plain" and isinstance(_class_attribute(shape.cls, name), _METHODS):
            expect.malformed(f"an attribute hides the method {name} of {shape.name}")


def _class_attribute(cls: type, name: str) -> object:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


KINDS: dict[str, Kind] = {
    "member": Immutable(build=_build_member, runs=0),
    "flag": Immutable(build=_build_flag, runs=0),
    "named": Immutable(build=_build_tuple),
    "instance": Mutable(shell=_instance_shell, fill=_fill_instance),
    **EXCEPTION_KINDS,
    **pydantic.KINDS,
}
