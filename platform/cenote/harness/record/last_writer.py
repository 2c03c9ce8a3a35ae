"""Which statement of a cell wrote a name: read from its text, for people and models."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cenote.harness.record.cell_syntax import MAX_CODE, parsed
from cenote.harness.record.code_names import bound_by
from cenote_worker.execution.results import Span
from cenote_worker.jail.cells.ipython_syntax import to_python


def last_writer(code: str, name: str) -> tuple[Span | None, str]:
    """The last statement that binds the name; else the last that may change its object in place. None: no such.

    A compound statement is looked into, so that it is the innermost one.
    """
    tree = parsed(code := to_python(code)) if len(code) <= MAX_CODE else None
    try:
        statements = list(_statements(tree))
    except RecursionError:  # a walk does not go as deep as statements can be nested
        return None, ""
    binding = [each for each in statements if name in _bound(each)]
    changing = binding or [each for each in statements if name in _changed(each)]
    if not changing:
        return None, ""
    import asttokens  # it takes a while to load, and few programs ask this

    start, end = asttokens.ASTText(code, tree=tree).get_text_range(changing[-1], padded=False)
    if getattr(changing[-1], "decorator_list", None):
        start = code.rfind("@", 0, start + 1)  # which belongs to no node
    (line, column), (end_line, end_column) = _position(code, start), _position(code, end)
    return Span(line=line, column=column, end_line=end_line, end_column=end_column), code[start:end]


def _position(code: str, offset: int) -> tuple[int, int]:
    return code.count("\n", 0, offset) + 1, offset - (code.rfind("\n", 0, offset) + 1)


def _statements(tree: ast.AST | None) -> Iterator[ast.stmt]:
    """In the order of the text, those inside others after them; not those of functions and classes."""
    for node in ast.iter_child_nodes(tree) if tree is not None else ():
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _statements(node)


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """What belongs to the statement itself, not to statements inside it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt))


def _bound(statement: ast.stmt) -> set[str]:
    return {name for node in _own_expressions(statement) for name in bound_by(node)}


def _changed(statement: ast.stmt) -> set[str]:
    """Names through which the statement stores, or whose methods or objects it hands to a call."""
    names: set[str] = set()
    for node in _own_expressions(statement):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(_root(node))
        elif isinstance(node, ast.Call):
            names |= {
                _root(each) for each in (node.func, *node.args, *(word.value for word in node.keywords))
            }
    return names


def _root(node: ast.AST) -> str:
    """`a` of `a.b[0].c`; empty where there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
