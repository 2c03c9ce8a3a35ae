"""Functions and classes as a model needs them: signatures on one line, fields, members, public methods."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum

from cenote.runtime.inject.annotations import classes_in, declares_fields, hints_of, is_typed_dict, render
from cenote.runtime.inject.injectables import Function
from cenote_worker.execution.results import VariableInfo

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
    r"\s*(?:(?:Args|Arguments|Parameters|Params|Returns?|Raises|Yields|Examples?|Notes?|Attributes)\s*+:?\s*+"
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


_MAX_MEMBERS = 40
"""Members of an Enum, and methods of a class, that are listed."""


_CONTAINERS = frozenset((list, tuple, set, frozenset, dict, Sequence, Mapping, Set))


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    annotation: object
    default: str | None = None
    doc: str = ""

    def __str__(self) -> str:
        typed = f"{self.name}: {render(self.annotation)}"
        return typed if self.default is None else f"{typed} = {self.default}"


def type_stub(cls: type, doc: str = "", *, code: bool = True) -> str:
    """A class in one line if it is a mere record or an Enum, else with a line for each documented field and method.

    `Item(id: str, price: float)`, `Size(Enum): S='s', M='m'`, `Row = {"id": int, "note"?: str}`.
    code: whether methods and properties are listed.
    """
    if issubclass(cls, Enum):
        return f"{cls.__name__}(Enum): {_members(cls)}{comment(doc)}"
    if is_typed_dict(cls):
        return f"{cls.__name__} = {{{_keys(cls)}}}{comment(doc)}"
    fields = _fields(cls)
    documented = fields is not None and any(field.doc for field in fields)
    lines = [f"  {field}{comment(field.doc)}" for field in fields or ()] if documented else []
    head = f"class {cls.__name__}" if documented else _head(cls, fields)
    if code:
        lines.extend((*_attributes(cls, fields), *_methods(cls)))
    return "\n".join([f"{head}{comment(doc)}", *lines])


def lean_stub(cls: type, doc: str = "", *, code: bool = True) -> str:
    """As `type_stub`, for a class that callers are given and need not make: its fields by name.

    `Order(id, address: Address, items: list[Item])`, `Row = dict(id, tags: list[str])`: a field has its type where
    that says what is inside of it.
    """
    if issubclass(cls, Enum):
        return type_stub(cls, doc, code=code)
    if is_typed_dict(cls):
        return f"{cls.__name__} = dict({_outline(hints_of(cls).items())}){comment(doc)}"
    fields = _fields(cls)
    if fields is None:
        return type_stub(cls, doc, code=code)
    lines = [*_attributes(cls, fields), *_methods(cls)] if code else []
    head = f"{cls.__name__}({_outline((field.name, field.annotation) for field in fields)})"
    return "\n".join([f"{head}{comment(doc)}", *lines])


def class_doc(cls: type) -> str:
    """The first sentence of the class's own docstring; generated and inherited ones say nothing."""
    own = cls.__dict__.get("__doc__") or ""
    return "" if own.startswith(f"{cls.__name__}(") or not own else first_sentence(cls)


def records_in(target: object) -> Iterator[type]:
    """Record classes that the annotations of a function or class mention, and those that these mention in turn."""
    seen: dict[type, None] = {}
    _collect(_annotations(target), seen)
    yield from seen


def arguments_in(target: object) -> Iterator[type]:
    """Of these, the ones that a caller has to make: for the arguments of the function, or of the class's methods."""
    seen: dict[type, None] = {}
    functions = (
        [_function_of(member) for _, member in _public(target)] if isinstance(target, type) else [target]
    )
    for function in functions:
        hints = hints_of(function) if function else {}
        _collect((hint for name, hint in hints.items() if name != "return"), seen)
    yield from seen


def is_record(cls: type) -> bool:
    """Whether callers must know a class's fields, since no model can."""
    return is_own(cls) and declares_fields(cls)


def is_own(cls: type) -> bool:
    """Whether a class was written for this program, so that no model can know it."""
    top = cls.__module__.partition(".")[0]
    if top == "__main__" or top.startswith("cenote"):
        return top == "__main__" or top.startswith("cenote_skill_")
    path = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return top not in sys.stdlib_module_names and "site-packages" not in path and "dist-packages" not in path


def _collect(annotations: Iterable[object], seen: dict[type, None]) -> None:
    for annotation in annotations:
        for cls in classes_in(annotation):
            if cls not in seen and is_record(cls):
                seen[cls] = None
                _collect(_annotations(cls), seen)


def _annotations(target: object) -> Iterator[object]:
    yield from hints_of(target).values()
    if isinstance(target, type):
        for _, member in _public(target):
            function = _function_of(member)
            yield from hints_of(function).values() if function else ()


def _head(cls: type, fields: list[_Field] | None) -> str:
    if fields is not None:
        return f"{cls.__name__}({', '.join(map(str, fields))})"
    listed = None if cls.__init__ is object.__init__ else parameters(cls)  # type: ignore[misc]
    return f"{cls.__name__}({', '.join(listed)})" if listed else f"class {cls.__name__}"


def _outline(fields: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name}: {inside}" if (inside := _inside(hint)) else name for name, hint in fields)


def _inside(annotation: object) -> str:
    """An annotation without what it may be besides; empty where it is of one plain value."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " | ".join(text for text in map(_inside, typing.get_args(annotation)) if text)
    if any(map(is_record, classes_in(annotation))):
        return render(annotation)
    kind = typing.get_origin(annotation) or annotation
    return kind.__name__ if isinstance(kind, type) and kind in _CONTAINERS else ""


def _members(cls: type[Enum]) -> str:
    members = [f"{member.name}={member.value!r}" for member in cls]
    more = f", ... ({len(members)} in all)" if len(members) > _MAX_MEMBERS else ""
    return ", ".join(members[:_MAX_MEMBERS]) + more


def _keys(cls: type) -> str:
    return ", ".join(
        f'"{name}"{"?" if _is_optional(cls, name, annotation) else ""}: {render(annotation)}'
        for name, annotation in hints_of(cls).items()
    )


def _is_optional(cls: type, name: str, annotation: object) -> bool:
    """The class itself does not see `NotRequired` in an annotation that was a text when it was made."""
    origin = typing.get_origin(annotation)
    optional: frozenset[str] = getattr(cls, "__optional_keys__", frozenset())
    return origin is typing.NotRequired or (name in optional and origin is not typing.Required)


def _fields(cls: type) -> list[_Field] | None:
    """The constructor's fields; None for a class that keeps none on record."""
    hints = hints_of(cls)
    if dataclasses.is_dataclass(cls):
        return [
            _Field(
                field.name,
                hints.get(field.name, field.type),
                _dataclass_default(field),
                _dataclass_doc(field),
            )
            for field in dataclasses.fields(cls)
            if field.init and not field.name.startswith("_")
        ]
    if isinstance(model_fields := getattr(cls, "model_fields", None), dict):
        return [_pydantic_field(name, info) for name, info in model_fields.items()]
    if isinstance(names := getattr(cls, "_fields", None), tuple):
        defaults = getattr(cls, "_field_defaults", {})
        return [
            _Field(n, hints.get(n, typing.Any), default_text(defaults[n], n) if n in defaults else None)
            for n in names
        ]
    return None


def _dataclass_default(field: dataclasses.Field[object]) -> str | None:
    if field.default is not dataclasses.MISSING:
        return default_text(field.default, field.name)
    return None if field.default_factory is dataclasses.MISSING else _shown_factory(field.default_factory)


def _dataclass_doc(field: dataclasses.Field[object]) -> str:
    doc = field.metadata.get("description", field.metadata.get("doc", ""))
    return doc if isinstance(doc, str) else ""


class _PydanticField(typing.Protocol):
    annotation: object
    default: object
    default_factory: Callable[..., object] | None
    description: str | None
    metadata: list[object]

    def is_required(self) -> bool: ...


def _pydantic_field(name: str, info: _PydanticField) -> _Field:
    default = None
    if not info.is_required():
        default = (
            _shown_factory(info.default_factory) if info.default_factory else default_text(info.default, name)
        )
    constraints = ", ".join(text for text in map(_constraint, info.metadata) if text)
    doc = "; ".join(part for part in (info.description or "", constraints) if part)
    return _Field(name, info.annotation, default, doc)


_CONSTRAINTS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "multiple_of": "multiple of ", "pattern": "matches ",
                "min_length": "at least ", "max_length": "at most "}  # fmt: skip


def _constraint(item: object) -> str:
    found = [(sign, getattr(item, name, None)) for name, sign in _CONSTRAINTS.items()]
    return ", ".join(f"{sign}{value}" for sign, value in found if value is not None)


_FACTORIES: dict[object, str] = {list: "[]", dict: "{}", set: "set()", tuple: "()"}


def _shown_factory(factory: Callable[..., object]) -> str:
    return _FACTORIES.get(factory, "...")


def _attributes(cls: type, fields: list[_Field] | None) -> Iterator[str]:
    """Annotated attributes that the constructor does not show, and properties."""
    shown = {field.name for field in fields or ()}
    for name, annotation in hints_of(cls).items() if fields is None else ():
        if not name.startswith("_"):
            yield f"  {name}: {render(annotation)}"
    for name, member in _public(cls):
        if isinstance(member, property) and name not in shown:
            returns = hints_of(member.fget).get("return") if member.fget else None
            yield f"  {name}{f': {render(returns)}' if returns else ''}{comment(first_sentence(member))}"


def _methods(cls: type) -> Iterator[str]:
    listed = 0
    for name, member in _public(cls):
        function = _function_of(member)
        if function is None:
            continue
        listed += 1
        if listed > _MAX_MEMBERS:
            yield "  ..."
            return
        call = "await " if inspect.iscoroutinefunction(function) else ""
        yield f"  {call}{callable_stub(name, _bound(cls, name, member), first_sentence(function))}"


def _function_of(member: object) -> Callable[..., object] | None:
    function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    return function if inspect.isfunction(function) else None


def _bound(cls: type, name: str, member: object) -> Callable[..., object]:
    """The method without its first argument, which the caller does not give."""
    if isinstance(member, staticmethod | classmethod):
        return typing.cast("Callable[..., object]", getattr(cls, name))
    return types.MethodType(typing.cast("Callable[..., object]", member), cls)


def _public(cls: type) -> Iterator[tuple[str, object]]:
    """Public members that the program's own classes define, base classes last."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if not is_own(owner):
            continue
        for name, member in vars(owner).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member
