"""The statements of a cell, and what each may do to names: read from its syntax, for slices."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cenote.harness.plan_names import bound_by
from cenote_worker.in_jail.rewrite import to_python
from cenote_worker.results import Span

ATOMS: Final = frozenset(
    ("int", "float", "bool", "str", "bytes", "complex", "NoneType", "range", "numpy.float64", "numpy.int64",
     "numpy.bool", "pandas.Timestamp", "pandas.Timedelta")
)  # fmt: skip
"""Types, as VariableInfo names them, of values that nothing changes and that hold nothing that can be changed."""

_READABLE: Final = ATOMS | {"list", "tuple", "dict", "set", "frozenset", "numpy.ndarray", "pandas.DataFrame",
                            "pandas.Series", "pandas.Index"}  # fmt: skip
"""Types that operators, subscripts and loops over them only read. An iterator is consumed, a defaultdict grows."""

_READING: Final = frozenset(
    ("abs", "bool", "dict", "divmod", "enumerate", "float", "frozenset", "int", "isinstance", "len", "list", "max",
     "min", "pow", "print", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "type",
     "zip")
)  # fmt: skip
"""Functions of the language that only read what they are given."""

_EXPRESSIONS: Final = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.JoinedStr,
    ast.FormattedValue, ast.ListComp, ast.SetComp, ast.DictComp, ast.comprehension, ast.Starred, ast.keyword,
)  # fmt: skip
_DISPLAYS: Final = (ast.Tuple, ast.List, ast.Dict, ast.Set)
_GRAMMAR: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)

_IMPORT: Final = re.compile(r"\bimport[ \t]+([^\n;#(]*\.[^\n;#(]*)")
_PACKAGE: Final = re.compile(r"([^\W\d]\w*)(?=\.)")

TypeOf = Callable[[str], str]
"""Of a name, while a cell runs: the type of its value as VariableInfo names it; empty when that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statement:
    """One at the top level of a cell, with all that is inside it.

    mentioned: names that it speaks of, in whatever scope. bound: those of them that it may bind or delete; sure: that
    it binds whenever it runs. imports: binding is not all that it does.
    """

    node: ast.stmt
    text: str
    span: Span
    mentioned: frozenset[str]
    bound: frozenset[str]
    sure: frozenset[str]

    @property
    def imports(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def has_inner_code(self) -> bool:
        """Whether some of its code may run later, when another statement does."""
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
        return any(isinstance(each, inner) for each in ast.walk(self.node))

    @property
    def is_plain_function(self) -> bool:
        """A definition that makes a function which holds nothing that could be changed."""
        return isinstance(self.node, ast.FunctionDef) and _is_plain(self.node)


def statements_of(code: str) -> list[Statement] | None:
    """None for a cell that is not taken apart: it is one statement, or no plain Python, or imports unknown names."""
    if ("\n" not in code and ";" not in code) or "\r" in code or "\f" in code or to_python(code) != code:
        return None
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = [each for statement in tree.body for each in ast.walk(statement)]
    if len(tree.body) < 2 or any(isinstance(each, ast.alias) and each.name == "*" for each in nodes):
        return None
    lines = code.split("\n")
    return [_statement(lines, each, tree.body) for each in tree.body]


def bodies_of(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """Global names that functions, methods and lambdas of the cell use; and those that they bind or store into.

    What is no plain Python has none: nothing is known of the step that ran it.
    """
    try:
        tree, table = ast.parse(code), symtable.symtable(code, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(), frozenset()
    used, bound = set[str](), set[str]()
    for inner in _functions(table):
        for symbol in inner.get_symbols():
            if symbol.is_global():
                used.add(symbol.get_name())
                bound |= {symbol.get_name()} if symbol.is_assigned() else set()
    return frozenset(used), frozenset(bound | set(_stored_into(tree)))


def parts_of_packages(code: str) -> set[str]:
    """Names that `import a.b` binds, which loads `b`: what was loaded of `a` before is still needed."""
    return {each for line in _IMPORT.findall(code) for each in _PACKAGE.findall(line)}


def is_quiet(statement: ast.stmt, type_of: TypeOf) -> bool:
    """Whether all that it does is to bind names, and to make new values out of others that it only reads."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            return all(_is_names(each, value) for each in targets) and _only_reads(value, type_of)
        case ast.AnnAssign(target=ast.Name(), value=value, annotation=annotation):
            return (value is None or _only_reads(value, type_of)) and _is_annotation(annotation)
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            return type_of(name) in ATOMS and _only_reads(value, type_of)
        case ast.Expr(value=value) | ast.Assert(test=value, msg=None):
            return _only_reads(value, type_of)
        case ast.If(test=test, body=body, orelse=other):
            return _only_reads(test, type_of) and all(is_quiet(each, type_of) for each in (*body, *other))
        case ast.FunctionDef():
            return _is_plain(statement)
        case ast.ClassDef(bases=[], keywords=[], decorator_list=[], body=body):
            return all(_is_member(each) for each in body)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


def is_atomic(statement: Statement, type_of: TypeOf) -> bool:
    """Whether no code of a user can run in it: it only reads, and all that it reads is atoms."""
    if not isinstance(statement.node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
        return statement.is_plain_function or isinstance(statement.node, ast.Pass)
    loaded = {
        each.id
        for each in ast.walk(statement.node)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)
    }
    return is_quiet(statement.node, type_of) and all(
        type_of(each) in ATOMS or (each in _READING and not type_of(each)) for each in loaded
    )


def _statement(lines: list[str], node: ast.stmt, body: list[ast.stmt]) -> Statement:
    span = _span(lines, node)
    alone = not any(
        other is not node and _first_line(other) <= span.end_line and (other.end_lineno or 0) >= span.line
        for other in body
    )
    text = lines[span.line - 1 : span.end_line]
    if not alone:
        text[-1] = text[-1][: span.end_column]
        text[0] = text[0][span.column :]
    nodes = list(ast.walk(node))
    bound = {name for each in nodes for name in bound_by(each)}
    named = {each.id for each in nodes if isinstance(each, ast.Name)}
    named |= {name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    return Statement(
        node=node,
        text="\n".join(text),
        span=span,
        mentioned=frozenset(named | bound),
        bound=frozenset(bound),
        sure=frozenset(_sure(node)),
    )


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


def _targets(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _targets(part)
        case ast.Starred(value=value):
            yield from _targets(value)


def _only_reads(node: ast.AST, type_of: TypeOf) -> bool:
    match node:
        case ast.Name() | ast.Constant() | ast.Lambda(args=ast.arguments(defaults=[], kw_defaults=[])):
            return True
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            known = name in _READING and not type_of(name)
            return known and all(_only_looked_at(each, type_of) for each in (*args, *keywords))
        case _ if isinstance(node, _DISPLAYS):
            return all(_only_reads(each, type_of) for each in ast.iter_child_nodes(node))
        case _ if isinstance(node, _EXPRESSIONS):
            return all(_only_looked_at(each, type_of) for each in ast.iter_child_nodes(node))
    return isinstance(node, _GRAMMAR)


def _only_looked_at(node: ast.AST, type_of: TypeOf) -> bool:
    """The same, for what an operator, a loop or a call looks into: the value of a name, too, must allow for that."""
    if isinstance(node, ast.Lambda):
        return False
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return type_of(node.id) in _READABLE
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, _DISPLAYS):
        return all(_only_looked_at(each, type_of) for each in ast.iter_child_nodes(node))
    return _only_reads(node, type_of)


def _is_names(target: ast.expr, value: ast.expr) -> bool:
    """Names that are bound without anything being unpacked but what is written there."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return all(isinstance(each, ast.Name) for each in target.elts)
    return isinstance(target, ast.Name)


def _is_plain(node: ast.FunctionDef) -> bool:
    arguments = node.args
    given = (
        *arguments.args,
        *arguments.posonlyargs,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    )
    notes = [each.annotation for each in given if each is not None and each.annotation is not None]
    return (
        not node.decorator_list
        and all(
            isinstance(each, ast.Constant) for each in (*arguments.defaults, *arguments.kw_defaults) if each
        )
        and all(_is_annotation(each) for each in (*notes, node.returns) if each is not None)
    )


def _is_annotation(node: ast.expr) -> bool:
    allowed = (
        ast.Name,
        ast.Attribute,
        ast.Constant,
        ast.Subscript,
        ast.Tuple,
        ast.List,
        ast.BinOp,
        *_GRAMMAR,
    )
    return all(isinstance(each, allowed) for each in ast.walk(node))


def _is_member(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef():
            return _is_plain(node)
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case ast.Assign(targets=[ast.Name()], value=ast.Constant()):
            return True
        case ast.AnnAssign(value=None | ast.Constant(), annotation=annotation):
            return _is_annotation(annotation)
    return False


def _functions(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for inner in table.get_children():
        if inner.get_type() == "function":
            yield inner
        yield from _functions(inner)


def _stored_into(tree: ast.AST) -> Iterator[str]:
    """Names of what attributes or items are set of, anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id
