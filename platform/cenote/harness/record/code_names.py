"""Names that code mentions: a guess at what it needs and makes, without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from cenote.harness.record.cell_syntax import MAX_CODE, parsed
from cenote_worker.jail.cells.ipython_syntax import to_python

_WRITES_A_FILE = re.compile(r"%%writefile ([^\s-]\S*)\n")


def written_file(code: str) -> str:
    """The file that the code writes if it is a cell that does nothing else; empty for any other."""
    found = _WRITES_A_FILE.match(code)
    return found[1] if found else ""


def mentioned_names(code: str) -> frozenset[str]:
    """Every name that the code reads, binds or deletes, in whatever scope. Empty for what `parsed` does not read."""
    return frozenset(name for node in _nodes(code) for name in (*_written(node), *_read(node)))


def bound_names(code: str) -> frozenset[str]:
    """Those of the names that it may bind or delete at its top level, from inner scopes as well. Empty for what
    `parsed` does not read."""
    return frozenset(_bound_in(_tree(code)))


def bound_by(node: ast.AST) -> Iterator[str]:
    """Names that this very node binds or deletes, not what is inside it."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=dotted, asname=asname):
            yield asname or dotted.partition(".")[0]
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield name


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _bound_in(tree: ast.AST) -> Iterator[str]:
    """Names of the top level: of an inner scope, what it says to be global, and what is worked out around it."""
    waiting = [(tree, False, False)]
    while waiting:
        node, inside, looping = waiting.pop()
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.NamedExpr) and not inside:  # in a comprehension, too
            yield node.target.id
        elif not inside and not looping:
            yield from bound_by(node)
        within = frozenset(map(id, _within(node)))
        for child in ast.iter_child_nodes(node):
            looped = looping or isinstance(node, _COMPREHENSIONS)
            waiting.append((child, inside or id(child) in within, looped))


def _within(node: ast.AST) -> Sequence[ast.AST]:
    """What of a function or class lies in its own scope."""
    match node:
        case ast.Lambda():
            return (node.body,)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.body
    return ()


def _nodes(code: str) -> Iterator[ast.AST]:
    return ast.walk(_tree(code))


def _tree(code: str) -> ast.Module:
    tree = parsed(to_python(code)) if len(code) <= MAX_CODE else None
    return tree or ast.Module(body=[], type_ignores=[])


def _read(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id


def _written(node: ast.AST) -> Iterator[str]:
    """Also those that a function says to be global: it may bind them."""
    yield from node.names if isinstance(node, ast.Global) else bound_by(node)
