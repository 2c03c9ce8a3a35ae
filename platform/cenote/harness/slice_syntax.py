"""The statements of a cell, and what each may do to names: read from its syntax, for slices."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from cenote.harness.plan_names import bound_by
from cenote.harness.slice_quiet import ALIASES, Quiet, TypeOf, all_atoms, is_plain
from cenote.harness.syntax import MAX_CODE, UnreadCode, parse
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.results import Span

MAX_READ: Final = 500_000
"""Characters of cells whose statements are kept: what is told of them takes up to a hundred times as much."""

_INNER: Final = frozenset(
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp, *ALIASES)
)
_WITHOUT_NAMES: Final = frozenset(
    (
        ast.Load,
        ast.Store,
        ast.Constant,
        ast.BinOp,
        ast.Call,
        ast.Attribute,
        ast.Subscript,
        ast.Assign,
        ast.Expr,
    )
)
"""What is met most often in programs, none of which binds a name: only to save asking."""

_IMPORT: Final = re.compile(r"\bimport[ \t]+([^\n;#(]*)")
_PACKAGE: Final = re.compile(r"([^\W\d]\w*)(?=\.)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statement:
    """One at the top level of a cell, with all that is inside it. Small, unlike its syntax: a history has thousands.

    mentioned: names that it speaks of, in whatever scope. bound: those of them that it may bind or delete; sure: that
    it binds whenever it runs. imports: binding is not all that it does. has_inner_code: some of its code may run
    later, when another statement does. is_plain_function: a definition that makes a function which holds nothing that
    could be changed. quiet: when it only reads; None: never. loaded: the names whose values it uses, if it is of a
    kind in which those alone say whether code of a user runs.
    """

    text: str
    span: Span
    mentioned: frozenset[str]
    bound: frozenset[str]
    sure: frozenset[str]
    imports: bool
    has_inner_code: bool
    is_plain_function: bool
    quiet: Quiet | None
    loaded: frozenset[str] | None

    def is_quiet(self, type_of: TypeOf) -> bool:
        """Whether all that it does is to bind names, and to make new values out of others that it only reads."""
        return self.quiet is not None and self.quiet.holds(type_of)

    def is_atomic(self, type_of: TypeOf) -> bool:
        """Whether no code of a user can run in it: it only reads, and all that it reads is atoms."""
        return self.loaded is not None and self.is_quiet(type_of) and all_atoms(self.loaded, type_of)


def statements_of(code: str) -> list[Statement] | None:
    """None for a cell that is not taken apart: it is one statement, or not plain Python that is read here, or
    imports unknown names.
    """
    if len(code) > MAX_CODE or ("\n" not in code and ";" not in code) or "\r" in code or "\f" in code:
        return None
    try:
        return _apart(code) if to_python(code) == code else None
    except (SyntaxError, ValueError, RecursionError, UnreadCode):  # a sum of a thousand names is as deep
        return None


def _apart(code: str) -> list[Statement] | None:
    tree = parse(code)
    nodes = [_nodes(each) for each in tree.body]
    if len(nodes) < 2 or ("*" in code and any(map(_is_star, chain(*nodes)))):
        return None
    lines = code.split("\n")
    spans = [_span(lines, each) for each in tree.body]
    return [
        _statement(_text(lines, spans, index), span, inside)
        for index, (span, inside) in enumerate(zip(spans, nodes, strict=True))
    ]


class ReadCells:
    """Cells that were read, by their code: each once, as long as there is room."""

    def __init__(self) -> None:
        self._room = MAX_READ
        self._found: dict[str, Sequence[Statement] | None] = {}

    def statements(self, code: str) -> Sequence[Statement] | None:
        """See `statements_of`."""
        if code not in self._found:
            if self._room < 0:
                self._room = MAX_READ
                self._found.clear()
            self._room -= len(code)
            self._found[code] = statements_of(code)
        return self._found[code]


def bodies_of(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """Global names that code of the cell uses which may run later: functions, methods, lambdas, values of type
    aliases and bounds of type parameters; and those that it binds or stores into.

    What is no Python has none: nothing has run. Raises UnreadCode.
    """
    try:
        tree, table = parse(code), symtable.symtable(code, "cell", "exec")
    except (SyntaxError, ValueError):
        return frozenset(), frozenset()
    except RecursionError:
        raise UnreadCode from None
    used, bound = set[str](), set[str]()
    for inner in _run_later(table):
        for symbol in inner.get_symbols():
            if symbol.is_global():
                used.add(symbol.get_name())
                bound |= {symbol.get_name()} if symbol.is_assigned() else set()
    return frozenset(used), frozenset(bound | set(_stored_into(tree)))


def parts_of_packages(code: str) -> set[str]:
    """Names that `import a.b` binds, which loads `b`: what was loaded of `a` before is still needed."""
    return {each for line in _IMPORT.findall(code) for each in _PACKAGE.findall(line)}


def _statement(text: str, span: Span, nodes: Sequence[ast.AST]) -> Statement:
    """nodes: itself, and all that is inside."""
    node = nodes[0]
    assert isinstance(node, ast.stmt)
    bound, named, loaded = set[str](), set[str](), set[str]()
    for each in nodes:
        if isinstance(each, ast.Name):
            named.add(each.id)
            if not isinstance(each.ctx, ast.Load):
                bound.add(each.id)
            if not isinstance(each.ctx, ast.Store):
                loaded.add(each.id)
        elif isinstance(each, ast.Global | ast.Nonlocal):
            named.update(each.names)
        elif type(each) not in _WITHOUT_NAMES:
            bound.update(bound_by(each))
    plain = isinstance(node, ast.FunctionDef) and is_plain(node)
    binds, sure = frozenset(bound), frozenset(_sure(node))
    return Statement(
        text=text,
        span=span,
        mentioned=frozenset(named | bound),
        bound=binds,
        sure=binds if sure == binds else sure,  # as mostly: thousands of these are kept
        imports=isinstance(node, ast.Import | ast.ImportFrom),
        has_inner_code=not _INNER.isdisjoint(map(type, nodes)),
        is_plain_function=plain,
        quiet=Quiet.of(node),
        loaded=_loaded(node, loaded, plain=plain),
    )


def _is_star(node: ast.AST) -> bool:
    return isinstance(node, ast.alias) and node.name == "*"


def _loaded(node: ast.stmt, loaded: set[str], *, plain: bool) -> frozenset[str] | None:
    """See Statement."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
        return frozenset(loaded)
    return frozenset() if plain or isinstance(node, ast.Pass) else None


def _nodes(node: ast.stmt) -> list[ast.AST]:
    """Itself, and all that is inside. `ast.walk` takes three times as long, and this is most of what a cell costs."""
    found: list[ast.AST] = [node]
    for each in found:  # which gets longer meanwhile
        for field in each._fields:
            inside = getattr(each, field, None)
            if isinstance(inside, ast.AST):
                found.append(inside)
            elif isinstance(inside, list):
                found += [one for one in inside if isinstance(one, ast.AST)]
    return found


def _text(lines: list[str], spans: Sequence[Span], index: int) -> str:
    """The lines of a statement, or what is its own of them, where others are on the same."""
    span = spans[index]
    text = lines[span.line - 1 : span.end_line]
    after_another = index > 0 and spans[index - 1].end_line >= span.line
    if after_another or (index + 1 < len(spans) and spans[index + 1].line <= span.end_line):
        text[-1] = text[-1][: span.end_column]
        text[0] = text[0][span.column :]
    return "\n".join(text)


def _span(lines: list[str], node: ast.stmt) -> Span:
    """With columns in characters, where the syntax tree counts bytes."""
    first, last = _first_line(node), node.end_lineno or node.lineno
    start = len(lines[first - 1].encode()[: node.col_offset].decode())
    end = len(lines[last - 1].encode()[: node.end_col_offset].decode())
    return Span(line=first, column=start, end_line=last, end_column=end)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _sure(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _targets(target)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            for alias in names:
                yield from bound_by(alias)
        case _ if isinstance(node, ALIASES):
            yield from _targets(node.name)


def _targets(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _targets(part)
        case ast.Starred(value=value):
            yield from _targets(value)


def _run_later(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    waiting = [table]
    while waiting:  # no recursion: lambdas are nested more deeply than that can go
        inside = waiting.pop().get_children()
        waiting += inside
        yield from (inner for inner in inside if inner.get_type() != "class")


def _stored_into(tree: ast.AST) -> Iterator[str]:
    """Names of what attributes or items are set of, anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id
