"""The statements of a cell, and what each may do to names: read from its syntax, for slices.

A quiet statement only binds names and makes new values of others that it only reads. Whether an operator only reads
depends on what its operands are. What a statement requires of the types of names is worked out once, so that a
caller who knows the types need not look at the syntax again.
"""

from __future__ import annotations

import ast
import re
import symtable
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Self

from cenote.harness.record.cell_syntax import MAX_CODE, UnreadCode, parse
from cenote.harness.record.code_names import bound_by
from cenote_worker.execution.results import Span
from cenote_worker.jail.cells.ipython_syntax import to_python

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
if sys.version_info >= (3, 12):  # Any: not each version has the type
    ALIASES: Final[tuple[type[Any], ...]] = (ast.TypeAlias,)
else:
    ALIASES: Final[tuple[type[Any], ...]] = ()
"""Statements that bind a type whose value is worked out on first use."""

_GRAMMAR: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)

TypeOf = Callable[[str], str]
"""Of a name, while a cell runs: the type of its value as VariableInfo names it; empty when that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What must be so for a statement to be quiet: to do nothing but bind names, and make values of what it reads.

    readable, atomic: names whose values are of types that can be looked into without being changed, or that nothing
    changes. unbound: names that have to be the language's own.
    """

    readable: frozenset[str] = frozenset()
    atomic: frozenset[str] = frozenset()
    unbound: frozenset[str] = frozenset()

    @classmethod
    def of(cls, node: ast.stmt) -> Self | None:
        """None: it is not, whatever the types are."""
        needs = _Needs()
        if not _is_quiet(node, needs):
            return None
        return cls(
            readable=frozenset(needs.readable),
            atomic=frozenset(needs.atomic),
            unbound=frozenset(needs.unbound),
        )

    def holds(self, type_of: TypeOf) -> bool:
        return (
            all(type_of(each) in _READABLE for each in self.readable)
            and all(type_of(each) in ATOMS for each in self.atomic)
            and not any(map(type_of, self.unbound))
        )


def all_atoms(names: frozenset[str], type_of: TypeOf) -> bool:
    """Whether these are values that run no code of a user, or functions of the language."""
    return all(type_of(each) in ATOMS or (each in _READING and not type_of(each)) for each in names)


@dataclass(slots=True)
class _Needs:
    """See Quiet; while a statement is gone through."""

    readable: set[str] = field(default_factory=set)
    atomic: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)


def _is_quiet(statement: ast.stmt, needs: _Needs) -> bool:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return all(_is_names(each, value) for each in targets) and _only_reads(value, needs)
        case ast.AnnAssign(target=ast.Name(), value=value, annotation=annotation):
            return (value is None or _only_reads(value, needs)) and _is_annotation(annotation)
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            needs.atomic.add(name)
            return _only_reads(value, needs)
        case ast.Expr(value=value) | ast.Assert(test=value, msg=None):
            return _only_reads(value, needs)
        case ast.If(test=test, body=body, orelse=other):
            return _only_reads(test, needs) and all(_is_quiet(each, needs) for each in (*body, *other))
        case ast.FunctionDef():
            return _only_defines(statement)
        case ast.ClassDef(bases=[], keywords=[], decorator_list=[], body=body):
            return all(_is_member(each) for each in body)
    return isinstance(statement, (ast.Import, ast.ImportFrom, ast.Pass, *ALIASES))


def _only_reads(node: ast.AST, needs: _Needs) -> bool:
    match node:
        case ast.Name() | ast.Constant() | ast.Lambda(args=ast.arguments(defaults=[], kw_defaults=[])):
            return True
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            needs.unbound.add(name)
            return name in _READING and all(_only_looked_at(each, needs) for each in (*args, *keywords))
        case _ if isinstance(node, _DISPLAYS):
            return all(_only_reads(each, needs) for each in ast.iter_child_nodes(node))
        case _ if isinstance(node, _EXPRESSIONS):
            return all(_only_looked_at(each, needs) for each in ast.iter_child_nodes(node))
    return isinstance(node, _GRAMMAR)


def _only_looked_at(node: ast.AST, needs: _Needs) -> bool:
    """The same, for what an operator, a loop or a call looks into: the value of a name, too, must allow for that."""
    if isinstance(node, ast.Lambda):
        return False
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        needs.readable.add(node.id)
        return True
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, _DISPLAYS):
        return all(_only_looked_at(each, needs) for each in ast.iter_child_nodes(node))
    return _only_reads(node, needs)


def _is_names(target: ast.expr, value: ast.expr) -> bool:
    """Names that are bound without anything being unpacked but what is written there."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return all(isinstance(each, ast.Name) for each in target.elts)
    return isinstance(target, ast.Name)


def is_plain(node: ast.FunctionDef) -> bool:
    """Whether it makes a function which holds nothing that could be changed, as type parameters can be."""
    return not getattr(node, "type_params", ()) and _only_defines(node)


def _only_defines(node: ast.FunctionDef) -> bool:
    """Whether making the function runs nothing, and gives it nothing but constants. Of type parameters bounds and
    defaults are worked out later."""
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
            return _only_defines(node)
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case ast.Assign(targets=[ast.Name()], value=ast.Constant()):
            return True
        case ast.AnnAssign(value=None | ast.Constant(), annotation=annotation):
            return _is_annotation(annotation)
    return False


MAX_READ: Final = 500_000
"""Characters of cells whose statements are kept: what is known of them takes up to a hundred times as much."""

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
_PACKAGE: Final = re.compile(r"\b\d*+([^\W\d]\w*+)(?=\.)")


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
    if "import" not in code:
        return set()
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
        for name in each._fields:
            inside = getattr(each, name, None)
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
