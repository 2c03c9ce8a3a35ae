"""Type annotations as short text, and the classes that they mention."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum

_MAX_LENGTH = 200
"""Characters of one annotation; longer ones are aliases spelled out, and are cut."""


_GENERICS = frozenset({"builtins", "collections", "collections.abc", "contextlib", "re", "types", "typing"})
"""Modules whose generic classes are what a library's signature is made of, and are known everywhere."""


def render(annotation: object) -> str:
    """An annotation as one would write it today: `list[Item] | None`, without module names; bounded."""
    text = _render(annotation)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."


def classes_in(annotation: object) -> Iterator[type]:
    """The classes that an annotation mentions, in order, those of generic arguments included."""
    annotation = _unwrapped(annotation)
    origin = typing.get_origin(annotation)
    if isinstance(annotation, type) and origin is None:
        yield annotation
    elif isinstance(origin, type) and origin.__module__ not in _GENERICS:
        yield origin  # of a class that is generic itself: `Box[int]`
    if origin is not typing.Literal:
        for argument in typing.get_args(annotation):
            for part in argument if isinstance(argument, list) else [argument]:
                yield from classes_in(part)


def hints_of(target: object) -> dict[str, object]:
    """Annotations of a function or class, each evaluated where it can be, else as its text."""
    function = target if _is_plain(target) else getattr(type(target), "__call__", target)  # noqa: B004
    try:
        return dict(typing.get_type_hints(function, include_extras=True))
    except Exception:  # noqa: BLE001  (any code may stand in an annotation)
        texts = dict(getattr(function, "__annotations__", None) or {})
        return {name: _evaluated(name, text, function) for name, text in texts.items()}


def declares_fields(cls: type) -> bool:
    """Whether a class is a record: dataclass, pydantic model, Enum, TypedDict or NamedTuple."""
    return (
        dataclasses.is_dataclass(cls)
        or issubclass(cls, Enum)
        or is_typed_dict(cls)
        or hasattr(cls, "model_fields")
        or hasattr(cls, "_fields")
    )


def is_typed_dict(cls: type) -> bool:
    """Also for that of typing_extensions, which `typing.is_typeddict` does not know on Python 3.11."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def _evaluated(name: str, text: object, owner: object) -> object:
    """One annotation, without the others that may name what does not exist."""
    alone = types.SimpleNamespace(__annotations__={name: text})
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    scope = getattr(inspect.unwrap(owner), "__globals__", None) if callable(owner) else None
    try:
        return typing.get_type_hints(alone, scope or vars(module), include_extras=True)[name]
    except Exception:  # noqa: BLE001
        return text


def _is_plain(target: object) -> bool:
    return isinstance(target, type) or inspect.isroutine(target)


def _unwrapped(annotation: object) -> object:
    """Without `Annotated`, `Required`, `NewType` and `type` aliases around it."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.ClassVar, typing.Final):
        return _unwrapped(typing.get_args(annotation)[0])
    if isinstance(annotation, typing.NewType):
        return _unwrapped(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":
        return _unwrapped(annotation.__value__)  # type: ignore[attr-defined]
    return annotation


def _render(annotation: object) -> str:
    annotation = _unwrapped(annotation)
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, list):
        return f"[{', '.join(map(_render, annotation))}]"
    return _render_generic(annotation)


def _render_generic(annotation: object) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " | ".join(_literal(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(_render, arguments)))
    if origin is not None and arguments:
        return f"{_name(origin)}[{', '.join(map(_render, arguments))}]"
    return _name(annotation)


def _literal(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _name(annotation: object) -> str:
    if annotation is Callable or annotation is typing.Callable:
        return "Callable"
    name = getattr(annotation, "__name__", None) or getattr(annotation, "_name", None)
    return name if isinstance(name, str) else str(annotation).removeprefix("typing.")
