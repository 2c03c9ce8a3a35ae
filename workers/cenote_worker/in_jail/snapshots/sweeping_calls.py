"""Which arrays of a namespace a cell is going to rewrite, functions of the user's that it calls included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Final

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.sweeps import Ahead, CallAhead, may_sweep, nodes, sweeps

__builtins__ = BUILTINS

LARGE: Final = 20 * 2**20
"""Bytes: copying so much page by page takes what the warden grants each cell (`zygote/snapshot_tax.py`)."""

_DEEPEST: Final = 4
"""Calls within calls that are followed."""

Definitions = Callable[[FunctionType], ast.FunctionDef | None]
"""The syntax of a function that a cell has defined, where its source is still there."""

_Names = Mapping[str, str | None]
"""What the parameters of a function are called in the namespace; None for what has no name there."""


def sweeps_much(
    statements: Sequence[ast.stmt], namespace: Mapping[str, object], definitions: Definitions
) -> bool:
    """Whether a cell rewrites so much that a snapshot is not worth its price."""
    if not may_sweep(statements) or _size(namespace.values()) < LARGE:
        return False  # most cells are not looked at any closer
    names = set(_names(sweeps(statements), namespace, definitions, _DEEPEST))
    return _size([namespace.get(name) for name in names]) >= LARGE


def _names(
    ahead: Iterable[Ahead], namespace: Mapping[str, object], definitions: Definitions, deepest: int
) -> Iterator[str]:
    for each in ahead:
        if isinstance(each, str):
            yield each
        elif deepest and (definition := _definition(each, namespace, definitions)) is not None:
            inside = _outside(each, definition)
            yield from _names(inside, namespace, definitions, deepest - 1)


def _definition(
    call: CallAhead, namespace: Mapping[str, object], definitions: Definitions
) -> ast.FunctionDef | None:
    if call.function in call.defined:
        return call.defined[call.function]
    function = namespace.get(call.function)
    return definitions(function) if type(function) is FunctionType else None


def _given(call: CallAhead, definition: ast.FunctionDef) -> _Names:
    parameters = [each.arg for each in (*definition.args.posonlyargs, *definition.args.args)]
    return {**dict(zip(parameters, call.arguments, strict=False)), **call.keywords}


def _outside(call: CallAhead, definition: ast.FunctionDef) -> Iterator[Ahead]:
    """What a call does, by the names of whoever makes it. That of a generator function does nothing."""
    given = _given(call, definition)
    found = [node for statement in definition.body for node in nodes(statement)]
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in found):
        return
    local = _local(definition.args, found)

    def name(inside: str) -> str | None:
        return given.get(inside) if inside in local else inside

    for each in sweeps(definition.body):
        if isinstance(each, CallAhead):
            if each.function in each.defined or each.function not in local:
                yield CallAhead(
                    function=each.function,
                    arguments=tuple(value and name(value) for value in each.arguments),
                    keywords={key: value and name(value) for key, value in each.keywords.items()},
                    defined={**call.defined, **each.defined},
                )
        elif (variable := name(each)) is not None:
            yield variable


def _local(parts: ast.arguments, found: Sequence[ast.AST]) -> set[str]:
    """Names that a function has of its own. found: in its body."""
    own = {each.arg for each in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs)}
    own |= {each.arg for each in (parts.vararg, parts.kwarg) if each is not None}
    own |= {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in found if isinstance(node, ast.FunctionDef)}
    return own - {name for node in found if isinstance(node, ast.Global) for name in node.names}


def _size(values: Iterable[object]) -> int:
    """Bytes of those that are arrays. Memory that two of them share counts twice."""
    numpy = sys.modules.get("numpy")
    kind = getattr(numpy, "ndarray", None)
    return sum(getattr(value, "nbytes", 0) for value in list(values) if type(value) is kind)
