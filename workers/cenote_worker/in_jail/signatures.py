"""A signature from its text, for functions whose code is elsewhere. Nothing in the text is evaluated."""

from __future__ import annotations

import ast
import inspect


class _Text:
    """Prints as the source of a default or an annotation that only the client could evaluate."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __repr__(self) -> str:
        return self._source


def parse_signature(text: str) -> inspect.Signature | None:
    """The signature in text such as `(name: str, count: int = 1) -> list[Item]`; None if it is not one."""
    try:
        body = ast.parse(f"def f{text}: ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    function = body[0]
    if len(body) != 1 or not isinstance(function, ast.FunctionDef):
        return None
    returns = _annotation(function.returns)
    try:
        return inspect.Signature(_parameters(function.args), return_annotation=returns)
    except ValueError:
        return None


def _parameters(args: ast.arguments) -> list[inspect.Parameter]:
    positional = [*args.posonlyargs, *args.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    found = []
    for index, (arg, default) in enumerate(zip(positional, [*padding, *args.defaults], strict=True)):
        only = index < len(args.posonlyargs)
        kind = inspect.Parameter.POSITIONAL_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        found.append(_parameter(arg, kind, default))
    if args.vararg:
        found.append(_parameter(args.vararg, inspect.Parameter.VAR_POSITIONAL, None))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(_parameter(arg, inspect.Parameter.KEYWORD_ONLY, default))
    if args.kwarg:
        found.append(_parameter(args.kwarg, inspect.Parameter.VAR_KEYWORD, None))
    return found


def _parameter(arg: ast.arg, kind: inspect._ParameterKind, default: ast.expr | None) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is None else _Text(ast.unparse(default))
    return inspect.Parameter(arg.arg, kind, default=value, annotation=_annotation(arg.annotation))


def _annotation(node: ast.expr | None) -> object:
    return inspect.Signature.empty if node is None else _Text(ast.unparse(node))
