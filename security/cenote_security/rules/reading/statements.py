"""How each kind of statement is read.

A class pattern of `match` reads attributes without an Attribute node, a mapping pattern reads items.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from cenote_security.rules.reading import constant_folding
from cenote_security.rules.reading.abstract_values import (
    Const,
    NameScope,
    Value,
    items,
    merge,
    merge_all,
    strings,
)
from cenote_security.rules.reading.expressions import assign, closure, quiet, unbind
from cenote_security.rules.reading.members import access, elements, item, load_name
from cenote_security.rules.reading.reader import CodeReader, Handlers
from cenote_security.rules.reading.reflection import run_types


def read_match(reader: CodeReader, node: ast.Match) -> None:
    subject = reader.visit(node.subject)
    for case in node.cases:
        before = reader.enter()
        match_pattern(reader, case.pattern, subject)
        if case.guard is not None:
            reader.visit(case.guard)
        reader.block(case.body)
        reader.leave(before)


def match_pattern(reader: CodeReader, pattern: ast.pattern, subject: Value) -> None:
    """Read the pattern, which takes parts of the subject."""
    match pattern:
        case ast.MatchValue():
            quiet(reader, pattern.value)
        case ast.MatchSingleton():
            pass
        case ast.MatchAs():
            _match_as(reader, pattern, subject)
        case ast.MatchOr():
            for alternative in pattern.patterns:
                match_pattern(reader, alternative, subject)
        case ast.MatchStar():
            if pattern.name:
                reader.bind(pattern.name, items((elements(subject),)))
        case ast.MatchSequence():
            for part in pattern.patterns:
                match_pattern(reader, part, elements(subject))
        case ast.MatchMapping():
            _match_mapping(reader, pattern, subject)
        case ast.MatchClass():
            _match_class(reader, pattern, subject)
        case _:
            reader.visit(pattern)  # a pattern of a later Python: no handler has it, and that is reported


def _match_as(reader: CodeReader, pattern: ast.MatchAs, subject: Value) -> None:
    if pattern.pattern is not None:
        match_pattern(reader, pattern.pattern, subject)
    if pattern.name:
        reader.bind(pattern.name, subject)


def _match_mapping(reader: CodeReader, pattern: ast.MatchMapping, subject: Value) -> None:
    for key, part in zip(pattern.keys, pattern.patterns, strict=True):
        named = quiet(reader, key)
        match_pattern(reader, part, item(reader, key, subject, named if type(named) is Const else None))
    if pattern.rest:
        reader.bind(pattern.rest, subject)


def _match_class(reader: CodeReader, pattern: ast.MatchClass, subject: Value) -> None:
    reader.visit(pattern.cls)
    for part in pattern.patterns:
        match_pattern(reader, part, subject)
    for name, part in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
        match_pattern(reader, part, access(reader, part, subject, name, token=name))


def read_expression(reader: CodeReader, node: ast.Expr) -> None:
    quiet(reader, node.value)


def read_assign(reader: CodeReader, node: ast.Assign) -> None:
    value = reader.visit(node.value)
    for target in node.targets:
        assign(reader, target, value)


def read_annotated(reader: CodeReader, node: ast.AnnAssign) -> None:
    _annotation(reader, node.annotation)
    if node.value is not None:
        assign(reader, node.target, reader.visit(node.value))
    elif type(node.target) is not ast.Name:
        reader.visit(node.target)


def read_augmented(reader: CodeReader, node: ast.AugAssign) -> None:
    former = _former(reader, node.target)
    value = constant_folding.binary(node.op, former, reader.visit(node.value))
    if value is None or reader.branches:
        value = merge_all((former, value, None))  # in a loop it happens again
    assign(reader, node.target, value)


def _former(reader: CodeReader, target: ast.expr) -> Value:
    return load_name(reader, target, target.id) if type(target) is ast.Name else None


def read_delete(reader: CodeReader, node: ast.Delete) -> None:
    for target in node.targets:
        unbind(reader, target)


def read_import(reader: CodeReader, node: ast.Import) -> None:
    for alias in node.names:
        where: ast.AST = node if len(node.names) == 1 else alias
        path = reader.import_module(where, alias.name)
        root = path.partition(".")[0]
        reader.modules.add(root)
        if alias.asname:
            reader.bind(alias.asname, path)
        else:
            reader.bind(alias.name.partition(".")[0], root)


def read_import_from(reader: CodeReader, node: ast.ImportFrom) -> None:
    module = node.module or ""
    if node.level or module == "__future__":
        return
    path = reader.import_module(node, module)
    reader.modules.add(path.partition(".")[0])
    for alias in node.names:
        if alias.name == "*":
            reader.stars.append(path)
            continue
        where: ast.AST = node if len(node.names) == 1 else alias
        value = access(reader, where, path, alias.name, token=alias.name)
        reader.bind(alias.asname or alias.name, value)


def read_function(reader: CodeReader, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    decorators = [reader.visit(decorator) for decorator in node.decorator_list]
    _annotations(reader, node)
    made = closure(reader, node)
    reader.bind(node.name, made if not decorators else merge(made, None))
    made.before[node.name] = made


def _annotations(reader: CodeReader, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    _type_parameters(reader, node)
    arguments = node.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    for part in named:
        if part is not None and part.annotation is not None:
            _annotation(reader, part.annotation)
    if node.returns is not None:
        _annotation(reader, node.returns)


def _annotation(reader: CodeReader, node: ast.expr) -> None:
    run_types(reader, node, sorted({*strings(reader.visit(node)), *_texts(node)}))


def _texts(node: ast.AST) -> Iterator[str]:
    """Those that are types; `Literal` has plain texts, and those after the first in `Annotated` are notes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if not isinstance(node, ast.Subscript):
        for part in ast.iter_child_nodes(node):
            yield from _texts(part)
        return
    match ast.unparse(node.value).rpartition(".")[2], node.slice:
        case "Literal", _:
            return
        case "Annotated", ast.Tuple(elts=[first, *_]):
            yield from _texts(first)
        case _, within:
            yield from _texts(within)


def _type_parameters(reader: CodeReader, node: ast.AST) -> None:
    for parameter in getattr(node, "type_params", ()):
        reader.visit(parameter)


def read_class(reader: CodeReader, node: ast.ClassDef) -> None:
    for decorator in node.decorator_list:
        reader.visit(decorator)
    _type_parameters(reader, node)
    for base in node.bases:
        reader.visit(base)
    for keyword in node.keywords:
        reader.visit(keyword.value)
    outer = reader.scoped(NameScope("class", reader.scope))
    reader.block(node.body)
    reader.scoped(outer)
    reader.bind(node.name, None)


def read_return(reader: CodeReader, node: ast.Return) -> None:
    if node.value is not None:
        value = reader.visit(node.value)
        if reader.closure is not None:
            reader.closure.returns = merge(reader.closure.returns, value)


def read_if(reader: CodeReader, node: ast.If) -> None:
    """A chain of `elif` is nested as deep as it is long: it is read in a loop."""
    while True:
        reader.visit(node.test)
        reader.branch(node.body)
        if len(node.orelse) == 1 and type(node.orelse[0]) is ast.If:
            node = node.orelse[0]
        else:
            reader.branch(node.orelse)
            return


def read_for(reader: CodeReader, node: ast.For | ast.AsyncFor) -> None:
    source = reader.visit(node.iter)
    reader.loop(lambda: assign(reader, node.target, elements(source)), node.body)
    reader.branch(node.orelse)


def read_while(reader: CodeReader, node: ast.While) -> None:
    reader.visit(node.test)
    reader.loop(lambda: None, node.body)
    reader.branch(node.orelse)


def read_with(reader: CodeReader, node: ast.With | ast.AsyncWith) -> None:
    """A context manager may swallow an exception, so that the block is not read as certain."""
    for manager in node.items:
        value = reader.visit(manager.context_expr)
        if manager.optional_vars is not None:
            assign(reader, manager.optional_vars, value)
    reader.branch(node.body)


def read_try(reader: CodeReader, node: ast.Try) -> None:
    reader.branch(node.body)
    for handler in node.handlers:
        _except(reader, handler)
    reader.branch(node.orelse)
    reader.block(node.finalbody)


def _except(reader: CodeReader, handler: ast.ExceptHandler) -> None:
    if handler.type is not None:
        reader.visit(handler.type)
    before = reader.enter()
    if handler.name:
        reader.bind(handler.name, None)
    reader.block(handler.body)
    reader.leave(before)


def read_raise(reader: CodeReader, node: ast.Raise) -> None:
    for part in (node.exc, node.cause):
        if part is not None:
            reader.visit(part)


def read_assert(reader: CodeReader, node: ast.Assert) -> None:
    reader.visit(node.test)
    if node.msg is not None:
        reader.visit(node.msg)


def read_global(reader: CodeReader, node: ast.Global) -> None:
    module = reader.scope.module()
    if reader.scope is not module:
        reader.scope.outward.update(dict.fromkeys(node.names, module))


def read_nonlocal(reader: CodeReader, node: ast.Nonlocal) -> None:
    for name in node.names:
        scope = reader.scope.parent
        while scope is not None and name not in scope.names:
            scope = scope.parent
        if scope is not None:
            reader.scope.outward[name] = scope


def read_nothing(reader: CodeReader, node: ast.stmt) -> None:
    """`pass`, `break`, `continue`: there is nothing in them."""


def read_type_parameter(reader: CodeReader, node: ast.AST) -> None:
    """`T: bound = default` in a type parameter list, both evaluated on demand."""
    for part in (getattr(node, "bound", None), getattr(node, "default_value", None)):
        if part is not None:
            _evaluated_later(reader, part)


def _evaluated_later(reader: CodeReader, value: ast.expr) -> None:
    """As the body of a function without parameters: by names that may be bound after it."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    closure(reader, ast.copy_location(ast.Lambda(args=nothing, body=value), value))


STATEMENTS: Handlers = {
    ast.AnnAssign: read_annotated,
    ast.Assert: read_assert,
    ast.Assign: read_assign,
    ast.AsyncFor: read_for,
    ast.AsyncFunctionDef: read_function,
    ast.AsyncWith: read_with,
    ast.AugAssign: read_augmented,
    ast.Break: read_nothing,
    ast.ClassDef: read_class,
    ast.Continue: read_nothing,
    ast.Delete: read_delete,
    ast.Expr: read_expression,
    ast.For: read_for,
    ast.FunctionDef: read_function,
    ast.Global: read_global,
    ast.If: read_if,
    ast.Import: read_import,
    ast.ImportFrom: read_import_from,
    ast.Match: read_match,
    ast.Nonlocal: read_nonlocal,
    ast.Pass: read_nothing,
    ast.Raise: read_raise,
    ast.Return: read_return,
    ast.Try: read_try,
    ast.TryStar: read_try,
    ast.While: read_while,
    ast.With: read_with,
}

if sys.version_info >= (3, 12):

    def read_type_alias(reader: CodeReader, node: ast.TypeAlias) -> None:
        """`type X = ...` evaluates its value when asked for it, which is any time."""
        _type_parameters(reader, node)
        _evaluated_later(reader, node.value)
        reader.bind(node.name.id, None)

    STATEMENTS = {
        **STATEMENTS,
        ast.ParamSpec: read_type_parameter,
        ast.TypeAlias: read_type_alias,
        ast.TypeVar: read_type_parameter,
        ast.TypeVarTuple: read_type_parameter,
    }
