"""Signatures and classes as text, and signatures made from text.

A signature is described without running code of its defaults and annotations. For stubs of remote functions, a
signature is made from text, of which nothing is evaluated. A class is described by its fields with their types, and
the parameters of its own methods.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from enum import EnumMeta
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from cenote_worker.jail.rendering.bounded_text import bases, bounded_repr, bounded_str, module_name, type_name
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_CHARS = 300
_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None), type(...)))
_PREFIXES: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_NONE_GIVEN = inspect.Signature()
_signature = inspect.signature
_class_dict = type.__dict__["__dict__"].__get__


def signature_text(function: object) -> str:
    """`(name: str, count=1)`; empty if the signature is unknown."""
    if not _is_plain(function):
        return ""
    try:
        signature = _signature(function, follow_wrapped=False)  # type: ignore[arg-type]
        text = f"({', '.join(_parameters(signature))}){_returns(signature)}"
    except Exception:  # __signature__ may be anything
        return ""
    return text if len(text) <= _CHARS else text[:_CHARS] + "..."


def _is_plain(function: object) -> bool:
    """Whether inspecting a callable runs no code of its own: `__signature__` may be an object of any kind."""
    if type(function) is MethodType:
        function = function.__func__
    if type(function) is FunctionType:
        attributes: Mapping[str, object] = vars(function)
        return type(attributes.get("__signature__", _NONE_GIVEN)) is inspect.Signature
    if type(function) is type:
        return not any("__signature__" in _class_dict(cls) for cls in bases(function))
    return type(function) is BuiltinFunctionType


def _parameters(signature: inspect.Signature) -> list[str]:
    parts: list[str] = []
    starred = positional_only = False
    for parameter in signature.parameters.values():
        kind = parameter.kind
        if positional_only and kind is not inspect.Parameter.POSITIONAL_ONLY:
            parts.append("/")
        positional_only = kind is inspect.Parameter.POSITIONAL_ONLY
        if kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
        parts.append(_parameter(parameter))
    return [*parts, "/"] if positional_only else parts


def _parameter(parameter: inspect.Parameter) -> str:
    annotation = _annotation(parameter.annotation)
    text: str = _PREFIXES.get(parameter.kind, "") + parameter.name + (f": {annotation}" if annotation else "")
    if parameter.default is inspect.Parameter.empty:
        return text
    equals = " = " if annotation else "="
    return f"{text}{equals}{_default(parameter.default)}"


def _default(value: object) -> str:
    return bounded_repr(value, 60) if type(value) in _PLAIN or _is_ours(value) else "..."


def _annotation(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if type(value) is type:
        return type_name(value)
    if type(value) is str:
        return bounded_str(value, 80)
    known = module_name(type(value)) in ("typing", "types") or _is_ours(value)
    return bounded_str(value, 80).replace("typing.", "") if known else ""


def _returns(signature: inspect.Signature) -> str:
    text = _annotation(signature.return_annotation)
    return f" -> {text}" if text else ""


def _is_ours(value: object) -> bool:
    """Whether a value's repr is code of this package, as for stand-ins of a host function's defaults."""
    return module_name(type(value)).startswith("cenote_worker.")


_PART_CHARS = 200
"""Characters of one annotation, default or sentence."""

_MOST_MEMBERS = 60


def class_text(cls: type) -> str:
    """`Order(id: str, note: str | None = None)`, its docstring and each public method of its own on a line."""
    return "\n".join([_head(cls), *(f"  {line}" for line in (*_doc(cls), *_methods(cls)))])


def is_record_class(cls: type) -> bool:
    """Whether it is a user's dataclass, pydantic model, named tuple, TypedDict or Enum."""
    table = _class_dict(cls)
    marks = ("__dataclass_fields__", "__pydantic_fields__", "__required_keys__", "_fields")
    return module_name(cls) == "__main__" and (
        issubclass(type(cls), EnumMeta) or any(each in table for each in marks)
    )


def _head(cls: type) -> str:
    name = type_name(cls)
    if issubclass(type(cls), EnumMeta):
        members = [f"{key}={bounded_repr(each.value, _PART_CHARS)}" for key, each in _members(cls)]
        return f"{name}(Enum): {', '.join(members)}"
    table = _class_dict(cls)
    if "__required_keys__" in table:
        optional = table.get("__optional_keys__", ())
        keys = [
            f"{key}{'?' if key in optional else ''}: {_annotation_of(hint)}"
            for key, hint in dict(table.get("__annotations__", {})).items()
        ]
        return f"{name} = dict({', '.join(keys)})"
    return f"{name}{_signature_of(cls)}"


def _members(cls: type) -> list[tuple[str, Any]]:
    return list(dict(cls.__members__).items())[:_MOST_MEMBERS]  # type: ignore[attr-defined]


def _signature_of(target: object, *, bound: bool = True) -> str:
    """bound: whether the caller passes the first parameter."""
    try:
        signature = inspect.signature(target)  # type: ignore[arg-type]
    except Exception:  # a class may say anything of how it is called
        return "(...)"
    taken = list(signature.parameters.values())[0 if bound else 1 :]
    returns = signature.return_annotation
    arrow = "" if returns in (inspect.Signature.empty, None) else f" -> {_annotation_of(returns)}"
    return f"({', '.join(map(_parameter_of, taken))}){arrow}"


_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _parameter_of(parameter: inspect.Parameter) -> str:
    text = f"{_STARS.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_annotation_of(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {bounded_repr(parameter.default, _PART_CHARS)}"
    return text


def _annotation_of(hint: object) -> str:
    if isinstance(hint, str):
        return bounded_str(hint, _PART_CHARS)
    if isinstance(hint, type) and type(hint).__module__ != "types":
        return type_name(hint)
    return bounded_repr(hint, _PART_CHARS).replace("typing.", "").replace("__main__.", "")


def _doc(cls: type) -> Iterator[str]:
    doc = _class_dict(cls).get("__doc__")
    if isinstance(doc, str) and doc.strip() and not doc.startswith(f"{type_name(cls)}("):
        yield bounded_str(" ".join(doc.split()), 5 * _PART_CHARS)


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
            said = bounded_str(" ".join((function.__doc__ or "").split()), _PART_CHARS)
            yield f"{name}{_signature_of(function, bound=isinstance(member, staticmethod))}{said and f'  # {said}'}"


class _Text:
    """Prints as the source of a default or an annotation that only the client could evaluate."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __repr__(self) -> str:
        return self._source


def parse_signature(text: str) -> inspect.Signature | None:
    """The signature in text such as `(name: str, count: int = 1) -> list[Item]`; None if it is invalid."""
    try:
        body = ast.parse(f"def f{text}: ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    function = body[0]
    if len(body) != 1 or not isinstance(function, ast.FunctionDef):
        return None
    returns = _parsed_annotation(function.returns)
    try:
        return inspect.Signature(_parsed_parameters(function.args), return_annotation=returns)
    except ValueError:
        return None


def _parsed_parameters(args: ast.arguments) -> list[inspect.Parameter]:
    positional = [*args.posonlyargs, *args.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    found = []
    for index, (arg, default) in enumerate(zip(positional, [*padding, *args.defaults], strict=True)):
        only = index < len(args.posonlyargs)
        kind = inspect.Parameter.POSITIONAL_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        found.append(_parsed_parameter(arg, kind, default))
    if args.vararg:
        found.append(_parsed_parameter(args.vararg, inspect.Parameter.VAR_POSITIONAL, None))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(_parsed_parameter(arg, inspect.Parameter.KEYWORD_ONLY, default))
    if args.kwarg:
        found.append(_parsed_parameter(args.kwarg, inspect.Parameter.VAR_KEYWORD, None))
    return found


def _parsed_parameter(
    arg: ast.arg, kind: inspect._ParameterKind, default: ast.expr | None
) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is None else _Text(ast.unparse(default))
    return inspect.Parameter(arg.arg, kind, default=value, annotation=_parsed_annotation(arg.annotation))


def _parsed_annotation(node: ast.expr | None) -> object:
    return inspect.Signature.empty if node is None else _Text(ast.unparse(node))
