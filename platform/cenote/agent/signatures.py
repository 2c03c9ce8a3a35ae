"""A callable as one line: its signature as a model needs it, and what it is for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum

from cenote.runtime.annotations import hints_of, render
from cenote.runtime.injectables import Function
from cenote_worker.results import VariableInfo

_MAX_TYPE = 60
_MAX_DEFAULT = 40
_MAX_DOC = 1000
"""Characters of a type's name, a default value and a description; what is longer belongs into code or a skill."""

_SENTENCE_END = re.compile(r"[.!?][\"')\]`]*(?=\s+[A-Z0-9\"'(\[`])")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|No|Nr|St|Mr|Mrs|Dr|[A-Z])\.$")
_SECRET = re.compile(
    r"(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?|auth)(?:$|_)", re.IGNORECASE
)
_SECTION = re.compile(
    r"\s*(?:(?:Args|Arguments|Parameters|Params|Returns?|Raises|Yields|Examples?|Notes?|Attributes)\s*:?\s*"
    r"|[:@](?:param|arg|returns?|raises?|type|rtype)\b.*|[-=~]{3,}|>>> .*)"
)

_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def function_stub(function: Function, *, full: bool = False) -> str:
    """`await search(query: str, limit: int = 10) -> list[Hit]  # Find documents`.

    full: with the whole docstring, what it says of the arguments too, and not with its first sentence alone.
    """
    said = whole_doc if full else first_sentence
    doc = function.description or (said(function.func) if function.include_doc else "")
    call = "await " if function.is_async else ""
    return call + callable_stub(function.name, function.func, doc)


def callable_stub(name: str, target: Callable[..., object], doc: str) -> str:
    """`name(arg: type = default) -> type  # doc`; `name(...)` where no signature can be had."""
    return f"{name}{_signature(target)}{comment(doc)}"


def comment(text: str) -> str:
    """A trailing comment on one line, or nothing. A text that is too long ends with a whole sentence or word."""
    line = " ".join(text.split())
    if len(line) > _MAX_DOC:
        start = line[: _MAX_DOC - 3]
        ends = list(_ends(start))
        line = f"{start[: ends[-1]] if ends else start.rpartition(' ')[0] or start} ..."
    return f"  # {line}" if line else ""


def type_name(info: VariableInfo) -> str:
    """The class of a variable without its module. A jail made this text: one short line, whatever it holds."""
    return " ".join(info.type.rpartition(".")[2].split())[:_MAX_TYPE]


def first_sentence(target: object) -> str:
    """The first sentence of a docstring, however many lines it has, without its full stop; empty if there is none."""
    lines = list[str]()
    for line in (inspect.getdoc(target) or "").strip().split("\n"):
        if not line.strip() or (lines and _SECTION.fullmatch(line)):
            break
        lines.append(line.strip())
    text = " ".join(lines)
    return text[: next(_ends(text), len(text))].removesuffix(".")


def whole_doc(target: object) -> str:
    """A docstring on one line; empty if there is none."""
    return " ".join((inspect.getdoc(target) or "").split())


def _ends(text: str) -> Iterator[int]:
    """Where sentences end that are followed by others."""
    for found in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[max(found.start() - 8, 0) : found.start() + 1]):
            yield found.end()


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
    default = default_text(parameter.default, parameter.name)
    return f"{text} = {default}" if typed else f"{text}={default}"


def default_text(value: object, name: str) -> str:
    """A default value as code, or `...` where that is long, can't be had, or by its name is nothing for a model.

    name: of the parameter or field.
    """
    if isinstance(value, str | bytes) and value and _SECRET.search(name):
        return "..."
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (a default's repr is the user's code)
        return "..."
    return text if len(text) <= _MAX_DEFAULT and "\n" not in text else "..."
