"""Arrays that a cell is going to rewrite, all of them at once, as its syntax says before it runs.

Nothing of such an array would be shared with the copy for long, and giving the copy up beforehand costs a tenth of
what giving it up halfway does. Only what is certain counts: plain statements that come before anything that may take
its time. What else sweeps is found out by whoever watches the cell (`zygote/pulse.py`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

LARGE: Final = 50 * 2**20
"""Bytes: copying so much page by page takes what the warden grants each cell (`zygote/snapshot_tax.py`)."""

_MOST: Final = 20
"""Statements that are looked at."""

_LONGEST: Final = 200
"""Nodes of one that are: 0.1 ms. Data that is written out as code takes its time to run, too."""

_PLAIN: Final = (ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.Expr, ast.Pass)
_SLOW: Final = (
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.MatMult,
    ast.Pow,
)
"""What may run code of any length, or compute for long with few operands. So may calls, but for these."""

_NUMPY: Final = frozenset({"np", "numpy"})
_ELEMENTWISE: Final = frozenset({
    "abs", "absolute", "add", "ceil", "clip", "copyto", "cos", "divide", "exp", "float32", "float64", "floor",
    "floor_divide", "int32", "int64", "log", "maximum", "minimum", "multiply", "negative", "rint", "round", "sign",
    "sin", "sqrt", "square", "subtract", "tanh", "true_divide", "where",
})  # fmt: skip
_QUICK: Final = frozenset({"print", "len", "float", "int"})


def sweeps(tree: ast.Module) -> tuple[str, ...]:
    """Names whose values a cell rewrites as a whole, if they are arrays, before it does anything that takes time."""
    statements = tree.body[:_MOST]
    while statements and not _rewritten(statements[-1]):
        statements.pop()  # most cells rewrite nothing, and are not looked at any closer
    return tuple(dict.fromkeys(_swept(statements)))


def swept_bytes(names: Collection[str], namespace: Mapping[str, object]) -> int:
    """How much memory of arrays that is. Memory that two of them share counts twice."""
    numpy = sys.modules.get("numpy")
    arrays = [
        value for name in names if type(value := namespace.get(name)) is getattr(numpy, "ndarray", None)
    ]
    return sum(getattr(array, "nbytes", 0) for array in arrays)


def _swept(statements: list[ast.stmt]) -> Iterator[str]:
    bound: set[str] = set()  # by the cell itself: new memory
    for statement in statements:
        if not _is_plain(statement):
            return
        yield from (name for name in _rewritten(statement) if name not in bound)
        if isinstance(statement, ast.Assign):
            bound.update(target.id for target in statement.targets if isinstance(target, ast.Name))


def _rewritten(statement: ast.stmt) -> list[str]:
    return [name for target in _targets(statement) for name in _whole(target)]


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.AugAssign(target=target):
            return [target]
        case ast.Assign(targets=targets):
            return [target for target in targets if isinstance(target, ast.Subscript)]
        case ast.Expr(value=ast.Call(keywords=keywords)):
            return [keyword.value for keyword in keywords if keyword.arg == "out"]
    return []


def _is_plain(statement: ast.stmt) -> bool:
    nodes = list(islice(_nodes(statement), _LONGEST + 1))
    return isinstance(statement, _PLAIN) and len(nodes) <= _LONGEST and not any(map(_is_slow, nodes))


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, which goes by builtins that a cell may have ruined. Trees may be deeper than calls, and wide."""
    waiting = [iter([node])]
    while waiting:
        for each in waiting[-1]:
            yield each
            waiting.append(_children(each))
            break
        else:
            waiting.pop()


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name in node._fields:
        value = getattr(node, name, None)
        children = value if isinstance(value, list) else (value,)
        yield from (child for child in children if isinstance(child, ast.AST))


def _is_slow(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
            return module not in _NUMPY or name not in _ELEMENTWISE
        case ast.Call(func=ast.Name(id=name)):
            return name not in _QUICK
    return isinstance(node, (ast.Call, *_SLOW))


def _whole(target: ast.expr) -> Iterator[str]:
    """The name of a variable, if all of its value is meant: `a`, `a[:]`, `a[...]`, `a[:, :]`."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=parts)) if all(map(_is_all, parts)):
            yield name
        case ast.Subscript(value=ast.Name(id=name), slice=part) if _is_all(part):
            yield name


def _is_all(part: ast.expr) -> bool:
    match part:
        case ast.Slice(lower=None, upper=None, step=None):
            return True
        case ast.Constant(value=value):
            return value is ...
    return False
