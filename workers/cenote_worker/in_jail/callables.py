"""Signatures of functions as text, without running code of their defaults and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType

from cenote_worker.in_jail.bounded import bases, bounded_repr, bounded_str, module_name, type_name
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_CHARS = 300
_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None), type(...)))
_PREFIXES: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_NONE_GIVEN = inspect.Signature()
_signature = inspect.signature
_class_dict = type.__dict__["__dict__"].__get__


def signature_text(function: object) -> str:
    """`(name: str, count=1)`; empty for what has no signature that can be known."""
    if not _is_plain(function):
        return ""
    try:
        signature = _signature(function, follow_wrapped=False)  # type: ignore[arg-type]
        text = f"({', '.join(_parameters(signature))}){_returns(signature)}"
    except Exception:  # __signature__ may be anything
        return ""
    return text if len(text) <= _CHARS else text[:_CHARS] + "..."


def _is_plain(function: object) -> bool:
    """Whether looking at a callable runs no code of its own: `__signature__` may be an object of any kind."""
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
    """Whether a value prints by code of this package: what stands for a host function's defaults does."""
    return module_name(type(value)).startswith("cenote_worker.")
