"""A callable as one line: its signature as a model needs it, and what it is for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum

from cenote.runtime.annotations import hints_of, render
from cenote.runtime.injectables import Function
from cenote_worker.results import VariableInfo

_MAX_TYPE = 60
_MAX_DEFAULT = 40
_MAX_DOC = 200
"""Characters of a type's name, a default value and a description; what is longer belongs into code or a skill."""


_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def function_stub(function: Function) -> str:
    """`await search(query: str, limit: int = 10) -> list[Hit]  # Find documents`."""
    doc = function.description or (first_line(function.func) if function.include_doc else "")
    call = "await " if function.is_async else ""
    return call + callable_stub(function.name, function.func, doc)


def callable_stub(name: str, target: Callable[..., object], doc: str) -> str:
    """`name(arg: type = default) -> type  # doc`; `name(...)` where no signature can be had."""
    return f"{name}{_signature(target)}{comment(doc)}"


def comment(text: str) -> str:
    """A trailing comment on one line, or nothing."""
    line = " ".join(text.split())
    if len(line) > _MAX_DOC:
        line = line[: _MAX_DOC - 3] + "..."
    return f"  # {line}" if line else ""


def type_name(info: VariableInfo) -> str:
    """The class of a variable without its module. A jail made this text: one short line, whatever it holds."""
    return " ".join(info.type.rpartition(".")[2].split())[:_MAX_TYPE]


def first_line(target: object) -> str:
    """The first line of a docstring, without its full stop; empty if there is none."""
    doc = inspect.getdoc(target) or ""
    return doc.strip().split("\n")[0].strip().removesuffix(".")


def parameters(target: Callable[..., object]) -> list[str] | None:
    """Each parameter as text, with the marks for keyword-only ones; None where no signature can be had."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    return list(_marked(signature, hints_of(target)))


def _signature(target: Callable[..., object]) -> str:
    listed = parameters(target)
    if listed is None:
        return "(...)"
    returns = hints_of(target).get("return", inspect.Signature.empty)
    arrow = "" if returns is inspect.Signature.empty else f" -> {render(returns)}"
    return f"({', '.join(listed)}){arrow}"


def _marked(signature: inspect.Signature, hints: dict[str, object]) -> Iterator[str]:
    star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        yield _parameter(parameter, hints.get(parameter.name, parameter.annotation))


def _parameter(parameter: inspect.Parameter, annotation: object) -> str:
    name = _STARS.get(parameter.kind, "") + parameter.name
    typed = annotation is not inspect.Parameter.empty
    text = f"{name}: {render(annotation)}" if typed else name
    if parameter.default is inspect.Parameter.empty:
        return text
    default = default_text(parameter.default)
    return f"{text} = {default}" if typed else f"{text}={default}"


def default_text(value: object) -> str:
    """A default value as code, or `...` where that is long or can't be had."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (a default's repr is the user's code)
        return "..."
    return text if len(text) <= _MAX_DEFAULT and "\n" not in text else "..."
