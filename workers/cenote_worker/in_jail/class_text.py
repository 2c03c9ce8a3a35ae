"""A class as text: its fields with their types, and what its own methods take."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import EnumMeta
from types import FunctionType
from typing import Any

from cenote_worker.in_jail.bounded import bases, bounded_repr, bounded_str, module_name, type_name
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_CHARS = 200
"""Characters of one annotation, default or sentence."""

_MOST_MEMBERS = 60
_class_dict = type.__dict__["__dict__"].__get__


def class_text(cls: type) -> str:
    """`Order(id: str, note: str | None = None)`, a line for its docstring and for each public method of its own."""
    return "\n".join([_head(cls), *(f"  {line}" for line in (*_doc(cls), *_methods(cls)))])


def is_record_class(cls: type) -> bool:
    """Whether it is a dataclass, a pydantic model, a named tuple, a TypedDict or an Enum of the program's own."""
    table = _class_dict(cls)
    marks = ("__dataclass_fields__", "__pydantic_fields__", "__required_keys__", "_fields")
    return module_name(cls) == "__main__" and (
        issubclass(type(cls), EnumMeta) or any(each in table for each in marks)
    )


def _head(cls: type) -> str:
    name = type_name(cls)
    if issubclass(type(cls), EnumMeta):
        members = [f"{key}={bounded_repr(each.value, _CHARS)}" for key, each in _members(cls)]
        return f"{name}(Enum): {', '.join(members)}"
    table = _class_dict(cls)
    if "__required_keys__" in table:
        optional = table.get("__optional_keys__", ())
        keys = [
            f"{key}{'?' if key in optional else ''}: {_annotation(hint)}"
            for key, hint in dict(table.get("__annotations__", {})).items()
        ]
        return f"{name} = dict({', '.join(keys)})"
    return f"{name}{_signature(cls)}"


def _members(cls: type) -> list[tuple[str, Any]]:
    return list(dict(cls.__members__).items())[:_MOST_MEMBERS]  # type: ignore[attr-defined]


def _signature(target: object, *, bound: bool = True) -> str:
    """bound: whether the first parameter is among those that a caller gives."""
    try:
        signature = inspect.signature(target)  # type: ignore[arg-type]
    except Exception:  # a class may say anything of how it is called
        return "(...)"
    taken = list(signature.parameters.values())[0 if bound else 1 :]
    returns = signature.return_annotation
    arrow = "" if returns in (inspect.Signature.empty, None) else f" -> {_annotation(returns)}"
    return f"({', '.join(map(_parameter, taken))}){arrow}"


_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _parameter(parameter: inspect.Parameter) -> str:
    text = f"{_STARS.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {bounded_repr(parameter.default, _CHARS)}"
    return text


def _annotation(hint: object) -> str:
    if isinstance(hint, str):
        return bounded_str(hint, _CHARS)
    if isinstance(hint, type) and type(hint).__module__ != "types":
        return type_name(hint)
    return bounded_repr(hint, _CHARS).replace("typing.", "").replace("__main__.", "")


def _doc(cls: type) -> Iterator[str]:
    doc = _class_dict(cls).get("__doc__")
    if isinstance(doc, str) and doc.strip() and not doc.startswith(f"{type_name(cls)}("):
        yield bounded_str(" ".join(doc.split()), 5 * _CHARS)


def _methods(cls: type) -> Iterator[str]:
    seen = set[str]()
    for owner in bases(cls):
        if module_name(owner) != "__main__":
            continue
        for name, member in list(_class_dict(owner).items()):
            function = getattr(member, "__func__", member)
            if not isinstance(function, FunctionType) or name[:1] == "_" or name in seen:
                continue
            seen.add(name)
            if len(seen) > _MOST_MEMBERS:
                return
            said = bounded_str(" ".join((function.__doc__ or "").split()), _CHARS)
            yield f"{name}{_signature(function, bound=isinstance(member, staticmethod))}{said and f'  # {said}'}"
