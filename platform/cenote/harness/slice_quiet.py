"""Statements that only bind names, and make new values out of others that they only read: read from their syntax.

Whether an operator only reads depends on what its operands are. What a statement asks of the types of names is worked
out once, so that whoever knows the types need not look at the syntax again.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

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
"""Statements that bind a type whose value is worked out when somebody asks for it."""

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
