"""Functions, variables and types as lists of text, in the form of the CaveAgent library."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import UnionType
from typing import Any, ForwardRef, Union, get_args, get_origin

from cenote.runtime.inject.injectables import Function, Type, Variable


def functions_text(functions: Iterable[Function]) -> str:
    return "\n".join(map(function_text, functions)) or "No functions available"


def variables_text(variables: Iterable[Variable], declared: Mapping[str, type]) -> str:
    """declared: what types variables have that are None now."""
    return (
        "\n".join(variable_text(one, declared.get(one.name)) for one in variables) or "No variables available"
    )


def types_text(types: Iterable[Type]) -> str:
    return "\n".join(filter(None, map(type_text, types))) or "No types available"


def function_text(function: Function) -> str:
    lines = [f"- function: {signature_of(function)}"]
    if function.description:
        lines.append(f"  description: {function.description}")
    if doc := doc_of(function):
        lines += ["  doc:", *(f"    {line}" for line in doc.split("\n"))]
    return "\n".join(lines)


def signature_of(function: Function) -> str:
    try:
        parameters = str(inspect.signature(function.func))
    except (ValueError, TypeError):  # of some that are written in C
        parameters = "(...)"
    return f"{'async ' if function.is_async else ''}{function.name}{parameters}"


def doc_of(function: Function) -> str | None:
    """Its docstring, where that is shown."""
    doc = getattr(function.func, "__doc__", None)
    return doc.strip() if function.include_doc and isinstance(doc, str) and doc.strip() else None


def variable_text(variable: Variable, declared: type | None = None) -> str:
    kind = type(variable.value) if variable.value is not None else declared or type(None)
    lines = [f"- name: {variable.name}", f"  type: {kind.__name__}"]
    if variable.description:
        lines.append(f"  description: {variable.description}")
    return "\n".join(lines)


def type_text(item: Type) -> str:
    """Empty for one that is not to be shown."""
    cls = item.value
    doc = (cls.__doc__ or "").strip() if item.include_doc else ""
    if not item.include_schema:
        body = [f"  doc: {doc}"] if doc else []
        heading = f"{item.name}:"
    elif issubclass(cls, Enum):
        heading = f"{cls.__name__} (Enum):"
        body = [f"  - {member.name} = {member.value!r}" for member in cls]
    else:
        heading = f"{cls.__name__}:"
        parts = _fields(cls) or _methods(cls, with_doc=item.include_doc)
        body = [*([f"  doc: {doc}"] if doc else []), *parts] if parts else []
    if not body:
        return ""
    description = [f"  description: {item.description}"] if item.description else []
    return "\n".join([heading, *description, *body])


def _fields(cls: type) -> list[str]:
    """Of a pydantic model or a dataclass."""
    lines: list[str] = []
    if isinstance(declared := getattr(cls, "model_fields", None), dict):
        for name, info in declared.items():
            note = f"  # {info.description}" if info.description else ""
            lines.append(f"    - {name}: {annotation_text(info.annotation)}{note}")
    elif dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            line = f"    - {field.name}: {annotation_text(field.type)}"
            if field.default is not dataclasses.MISSING:
                line += f" = {field.default!r}"
            elif field.default_factory is not dataclasses.MISSING:
                line += " = <factory>"
            lines.append(line)
    else:
        return []
    return ["  fields:", *lines]


def _methods(cls: type, *, with_doc: bool) -> list[str]:
    lines: list[str] = []
    for name, method in inspect.getmembers(cls, predicate=inspect.isfunction):
        if name.startswith("_"):
            continue
        lines.append(f"    - {name}{_parameters(method)}")
        doc = (method.__doc__ or "").strip()
        if with_doc and doc:
            lines.append(f"        {doc}")
    return ["  methods:", *lines] if lines else []


def _parameters(method: Callable[..., Any]) -> str:
    signature = inspect.signature(method)
    shown = []
    for name, parameter in signature.parameters.items():
        if name == "self":
            continue
        text = name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {annotation_text(parameter.annotation)}"
        if parameter.default is not inspect.Parameter.empty:
            text += f" = {parameter.default!r}"
        shown.append(text)
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {annotation_text(returned)}"
    return f"({', '.join(shown)}){arrow}"


def annotation_text(annotation: Any) -> str:
    """An annotation as one would write it."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1 and len(arguments) == 2:
            return f"Optional[{annotation_text(others[0])}]"
        return f"Union[{', '.join(map(annotation_text, arguments))}]"
    if origin is not None:
        name = getattr(origin, "__name__", str(origin).removeprefix("typing."))
        return f"{name}[{', '.join(map(annotation_text, arguments))}]" if arguments else name
    return str(getattr(annotation, "__name__", str(annotation).removeprefix("typing.")))
