"""Which statement of a cell defines and uses what: the precision of blame, of impact, and of patches by name.

By syntax alone: a cell is not run for it, and need not have been. Spans are those of `ast`; who shows or edits text
finds the decorators, comments and brackets that belong to a statement with asttokens.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cenote_worker.results import Span

Kind = Literal["function", "class", "import", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A name that a statement binds at the top level of its cell. span: of the statement, with its decorators."""

    name: str
    kind: Kind
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement at the top level of a cell.

    definitions: names that it binds. uses: names that it reads, at once or when what it defines is called. changes:
    names whose objects it stores into, such as `df` in `df["a"] = 1`. deletes: names that it unbinds.
    """

    span: Span
    definitions: tuple[Definition, ...] = ()
    uses: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()


_BUILTINS = frozenset(vars(builtins))


def statements_of(source: str) -> tuple[Statement, ...]:
    """Raises SyntaxError for what is not Python; the `%` and `!` of notebooks are not."""
    tree = ast.parse(source)
    lines = source.splitlines() or [""]
    return tuple(_statement(node, lines) for node in tree.body)


def definition_of(source: str, name: str) -> Definition | None:
    """The last definition of the name in a cell, which is the one that holds after it."""
    for statement in reversed(statements_of(source)):
        for definition in statement.definitions:
            if definition.name == name:
                return definition
    return None


def _statement(node: ast.stmt, lines: list[str]) -> Statement:
    span = _span(node, lines)
    table = symtable.symtable(ast.unparse(node), "<cell>", "exec")
    stored, deleted = _stored(node), _deleted(node)
    kinds = dict(_kinds(node))
    bound = [
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()
    ]
    bound += sorted(_globals_bound(table))
    names = [name for name in dict.fromkeys(bound) if name not in deleted or name in stored]
    return Statement(
        span=span,
        definitions=tuple(Definition(name=name, kind=kinds.get(name, "value"), span=span) for name in names),
        uses=frozenset(_used(table)) - _BUILTINS | _augmented(node),
        changes=frozenset(_changed(node)),
        deletes=frozenset(deleted),
    )


def _span(node: ast.stmt, lines: list[str]) -> Span:
    first: ast.stmt | ast.expr = node
    for decorator in getattr(node, "decorator_list", ())[:1]:
        first = decorator
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    column = _characters(lines[first.lineno - 1], first.col_offset)
    return Span(
        line=first.lineno,
        column=column - 1 if first is not node else column,  # the `@`
        end_line=node.end_lineno,
        end_column=_characters(lines[node.end_lineno - 1], node.end_col_offset),
    )


def _characters(line: str, column: int) -> int:
    return len(line.encode()[:column].decode("utf-8", "ignore"))


def _kinds(node: ast.stmt) -> Iterator[tuple[str, Kind]]:
    for inner in _at_top_level(node):
        match inner:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield inner.name, "function"
            case ast.ClassDef():
                yield inner.name, "class"
            case ast.Import() | ast.ImportFrom():
                for alias in inner.names:
                    yield alias.asname or alias.name.partition(".")[0], "import"


def _at_top_level(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is in it, but for bodies of functions and classes."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _at_top_level(child)


def _stored(node: ast.stmt) -> set[str]:
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _deleted(node: ast.stmt) -> set[str]:
    return {
        each.id
        for each in _at_top_level(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del)
    }


def _augmented(node: ast.stmt) -> frozenset[str]:
    """`x += 1` reads x, which the symbol table does not say."""
    targets = (each.target for each in ast.walk(node) if isinstance(each, ast.AugAssign))
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    """Names read that are global: at the top level all, further inside those that are no local ones there."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _used(inner)


def _globals_bound(table: symtable.SymbolTable) -> Iterator[str]:
    for inner in table.get_children():
        for symbol in inner.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                yield symbol.get_name()
        yield from _globals_bound(inner)


def _changed(node: ast.stmt) -> Iterator[str]:
    """Roots of attributes and items that are set or deleted: `a` in `a.b[0].c = 1`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            root: ast.expr = each
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name):
                yield root.id
