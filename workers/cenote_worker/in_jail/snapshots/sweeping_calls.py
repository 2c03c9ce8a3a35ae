"""Which arrays of a namespace a cell is going to rewrite, functions of the user's that it calls included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, Final, TypeGuard

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.reached import index_of, reached
from cenote_worker.in_jail.snapshots.reached_in_frames import is_frame, reached_in_frame
from cenote_worker.in_jail.snapshots.sweeps import (
    Ahead,
    CallAhead,
    Part,
    Rewritten,
    Sorted,
    may_sweep,
    nodes,
    sweeps,
)

__builtins__ = BUILTINS

LARGE: Final = 20 * 2**20
"""Bytes: copying so much page by page takes what the warden grants each cell (`zygote/snapshot_tax.py`)."""

_WORTH_A_TURN: Final = 2**14
"""Bytes: whoever writes less each time that a loop goes round is busy with other things than copying."""

_DEEPEST: Final = 4
"""Calls within calls that are followed."""

Definitions = Callable[[FunctionType], ast.FunctionDef | None]
"""The syntax of a function that a cell has defined, where its source is still there."""

_Names = Mapping[str, str | None]
"""What the parameters of a function are called in the namespace; None for what has no name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a cell rewrites of large arrays. size: bytes. ordered: arrays that it puts in order."""

    size: int
    ordered: tuple[object, ...]


def sweep_of(
    statements: Sequence[ast.stmt], namespace: Mapping[str, object], definitions: Definitions
) -> Sweep | None:
    """None for a cell that rewrites less than a snapshot is worth."""
    if not may_sweep(statements) or not _is_much(list(namespace.values())):
        return None  # most cells are not looked at any closer
    ahead = list(_resolved(sweeps(statements), namespace, definitions, _DEEPEST))
    whole = [namespace.get(name) for name in {each for each in ahead if isinstance(each, str)}]
    ordered = [namespace.get(name) for name in {each.array for each in ahead if isinstance(each, Sorted)}]
    parts = sum(_reached(each, namespace) for each in ahead if isinstance(each, Part))
    size = _size(whole) + _size(ordered) + parts
    return Sweep(size=size, ordered=tuple(filter(_is_array, ordered))) if size >= LARGE else None


def _reached(part: Part, namespace: Mapping[str, object]) -> int:
    def value_of(name: str) -> object:
        value = namespace.get(part.names[name])
        if type(value) is int or _is_array(value):
            return value
        raise ValueError("anything else may do anything when it is looked at")

    array = namespace.get(part.array)
    if part.by:
        return reached_in_frame(array, part, namespace)
    if not _is_array(array) or array.nbytes < LARGE:
        return 0
    try:
        size = reached(array, index_of(part.index, value_of))
    except ValueError:
        return 0
    if part.times == 1:
        return size
    return min(array.nbytes, size * part.times) if size >= _WORTH_A_TURN else 0


def _resolved(
    ahead: Iterable[Ahead], namespace: Mapping[str, object], definitions: Definitions, deepest: int
) -> Iterator[Rewritten]:
    for each in ahead:
        if not isinstance(each, CallAhead):
            yield each
        elif deepest and (definition := _definition(each, namespace, definitions)) is not None:
            inside = _outside(each, definition)
            yield from _resolved(inside, namespace, definitions, deepest - 1)


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
        elif isinstance(each, Part):
            outside = {word: name(known) for word, known in each.names.items()}
            names = {word: known for word, known in outside.items() if known is not None}
            if (array := name(each.array)) is not None and len(names) == len(outside):
                yield replace(each, array=array, names=names)
        elif isinstance(each, Sorted):
            if (array := name(each.array)) is not None:
                yield Sorted(array=array)
        elif (variable := name(each)) is not None:
            yield variable


def _local(parts: ast.arguments, found: Sequence[ast.AST]) -> set[str]:
    """Names that a function has of its own. found: in its body."""
    own = {each.arg for each in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs)}
    own |= {each.arg for each in (parts.vararg, parts.kwarg) if each is not None}
    own |= {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in found if isinstance(node, ast.FunctionDef)}
    return own - {name for node in found if isinstance(node, ast.Global) for name in node.names}


def _is_much(values: Iterable[object]) -> bool:
    return _size(values) >= LARGE or any(is_frame(value, LARGE) for value in values)


def _size(values: Iterable[object]) -> int:
    """Bytes of those that are arrays. Memory that two of them share counts twice."""
    return sum(getattr(value, "nbytes", 0) for value in filter(_is_array, list(values)))


def _is_array(value: object) -> TypeGuard[Any]:
    """Of numpy's own class."""
    numpy = sys.modules.get("numpy")
    return type(value) is getattr(numpy, "ndarray", None)
