"""How each kind of expression is read, calls apart, and what an assignment binds."""

from __future__ import annotations

import ast
import sys

from cenote_security.rules.reading import constant_folding
from cenote_security.rules.reading.abstract_values import (
    Closure,
    Const,
    Items,
    NameScope,
    Table,
    Value,
    items,
    merge,
    merge_all,
    table,
)
from cenote_security.rules.reading.members import access, elements, format_fields, item, load_name
from cenote_security.rules.reading.reader import CodeReader, Handlers


def assign(reader: CodeReader, target: ast.expr, value: Value) -> None:
    """Bind the target to the value, part by part."""
    if type(target) is ast.Name:
        reader.bind(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(reader, target.elts, value)
    elif type(target) is ast.Starred:
        assign(reader, target.value, value)
    elif type(target) is ast.Attribute:
        owner = reader.visit(target.value)
        access(reader, target, owner, target.attr, token=target.attr, load=False)
        reader.keep(target.attr, value)
    elif type(target) is ast.Subscript:
        _assign_item(reader, target, value)


def _assign_item(reader: CodeReader, target: ast.Subscript, value: Value) -> None:
    owner = reader.visit(target.value)
    key = Const(target.slice.value) if type(target.slice) is ast.Constant else reader.visit(target.slice)
    if type(key) is Const and isinstance(key.value, str):
        if owner in ("globals()", "locals()"):
            reader.scope.module().set(key.value, value, certain=False)
        elif owner == "sys.modules" or owner == "builtins":
            item(reader, target, owner, key)
        reader.keep(key.value, value)


def _unpack(reader: CodeReader, targets: list[ast.expr], value: Value) -> None:
    starred = [index for index, target in enumerate(targets) if type(target) is ast.Starred]
    if type(value) is not Items or (len(value.values) != len(targets) and not starred):
        for target in targets:
            assign(reader, target, elements(value))
        return
    values = value.values
    if starred:
        first, after = starred[0], len(targets) - starred[0] - 1
        middle = items(values[first : len(values) - after])
        values = (*values[:first], middle, *values[len(values) - after :])
    for target, part in zip(targets, values, strict=False):
        assign(reader, target, part)


def unbind(reader: CodeReader, target: ast.expr) -> None:
    """What `del` does to the target."""
    if type(target) is ast.Name:
        reader.scope.delete(target.id)
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            unbind(reader, part)
    elif type(target) is ast.Attribute:
        access(reader, target, reader.visit(target.value), target.attr, token=target.attr, load=False)
    elif type(target) is ast.Subscript:
        _assign_item(reader, target, None)


EXACT_FSTRINGS = sys.version_info >= (3, 12)
"""Before 3.12 what stands inside an f-string has no true position: the whole f-string is shown instead."""


def read_name(reader: CodeReader, node: ast.Name) -> Value:
    return load_name(reader, node, node.id) if type(node.ctx) is ast.Load else None


def read_constant(reader: CodeReader, node: ast.Constant) -> Value:
    text = node.value
    if type(text) is str:
        if text[:2] == "__":
            reader.spelled(node, text)
        elif "{" in text and ("." in text or "[" in text):
            format_fields(reader, node, text)
    return Const(text)


def quiet(reader: CodeReader, node: ast.expr) -> Value:
    """Read an expression where a literal is compared, printed or looked up: spelling a name there is harmless."""
    return Const(node.value) if type(node) is ast.Constant else reader.visit(node)


def read_attribute(reader: CodeReader, node: ast.Attribute) -> Value:
    owner = reader.visit(node.value)
    return access(reader, node, owner, node.attr, token=node.attr, load=type(node.ctx) is ast.Load)


def read_subscript(reader: CodeReader, node: ast.Subscript) -> Value:
    owner = reader.visit(node.value)
    if type(node.slice) is ast.Slice:
        return _slice(reader, owner, node.slice)
    return item(reader, node, owner, quiet(reader, node.slice))


def _slice(reader: CodeReader, owner: Value, node: ast.Slice) -> Value:
    bounds = [None if part is None else reader.visit(part) for part in (node.lower, node.upper, node.step)]
    plain = [bound.value if type(bound) is Const else None for bound in bounds]
    return constant_folding.subscript(owner, slice(*plain))


def read_slice(reader: CodeReader, node: ast.Slice) -> Value:
    for part in (node.lower, node.upper, node.step):
        if part is not None:
            reader.visit(part)
    return None


def read_binary(reader: CodeReader, node: ast.BinOp) -> Value:
    """Long sums lean to the left, one level a term: they are read in a loop."""
    spine = [node]
    while type(spine[-1].left) is ast.BinOp:
        spine.append(spine[-1].left)
    value = reader.visit(spine[-1].left)
    for operation in reversed(spine):
        value = constant_folding.binary(operation.op, value, reader.visit(operation.right))
    return _composed(reader, node, value)


def _composed(reader: CodeReader, node: ast.AST, value: Value) -> Value:
    if type(value) is Const and type(value.value) is str:
        reader.spelled(node, value.value)
        if "{" in value.value:
            format_fields(reader, node, value.value)
    return value


def read_unary(reader: CodeReader, node: ast.UnaryOp) -> Value:
    value = reader.visit(node.operand)
    if type(node.op) is ast.USub and type(value) is Const and type(value.value) is int:
        return Const(-value.value)
    return None


def read_either_or(reader: CodeReader, node: ast.BoolOp) -> Value:
    first = reader.visit(node.values[0])
    before = reader.enter()
    rest = [reader.visit(value) for value in node.values[1:]]
    reader.leave(before)
    return merge_all((first, *rest))


def read_conditional(reader: CodeReader, node: ast.IfExp) -> Value:
    reader.visit(node.test)
    before = reader.enter()
    value = merge(reader.visit(node.body), reader.visit(node.orelse))
    reader.leave(before)
    return value


def read_compare(reader: CodeReader, node: ast.Compare) -> Value:
    quiet(reader, node.left)
    for comparator in node.comparators:
        if isinstance(comparator, ast.Tuple | ast.List | ast.Set):
            for element in comparator.elts:
                quiet(reader, element)
        else:
            quiet(reader, comparator)
    return None


def read_sequence(reader: CodeReader, node: ast.List | ast.Tuple | ast.Set) -> Value:
    values: list[Value] = []
    for element in node.elts:
        if type(element) is ast.Starred:
            inner = reader.visit(element.value)
            values.extend(inner.values if type(inner) is Items else (elements(inner),))
        else:
            values.append(reader.visit(element))
    return items(values)


def read_starred(reader: CodeReader, node: ast.Starred) -> Value:
    return elements(reader.visit(node.value))


def read_dict(reader: CodeReader, node: ast.Dict) -> Value:
    entries: dict[object, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        named = None if key is None else quiet(reader, key)
        meaning = reader.visit(value)
        if type(named) is Const:
            entries[named.value] = meaning
        elif type(meaning) is Table and key is None:
            entries.update(meaning.entries)
    return table(entries)


def read_fstring(reader: CodeReader, node: ast.JoinedStr) -> Value:
    outer = reader.anchor
    if not EXACT_FSTRINGS and outer is None:
        reader.anchor = node
    parts = [reader.visit(part) for part in node.values]
    reader.anchor = outer
    return _composed(reader, node, constant_folding.method(Const(""), "join", [items(parts)]))


def read_replacement(reader: CodeReader, node: ast.FormattedValue) -> Value:
    value = reader.visit(node.value)
    if node.format_spec is not None:
        reader.visit(node.format_spec)
        return None
    return constant_folding.call("builtins.str", [value]) if node.conversion in (-1, ord("s")) else None


def read_walrus(reader: CodeReader, node: ast.NamedExpr) -> Value:
    value = reader.visit(node.value)
    home = reader.scope.home()
    home.set(node.target.id, value, certain=home is reader.scope)
    return value


def read_lambda(reader: CodeReader, node: ast.Lambda) -> Value:
    return closure(reader, node)


def closure(reader: CodeReader, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Closure:
    """A function: its defaults are read now, its body when the rest has been."""
    parameters = _parameters(reader, node.args)
    scope = reader.scope.enclosing()
    made = Closure(node, scope, dict(scope.names), parameters)
    reader.defer(made)
    return made


def _parameters(reader: CodeReader, node: ast.arguments) -> dict[str, Value]:
    positional = [*node.posonlyargs, *node.args]
    extra = [part for part in (node.vararg, node.kwarg) if part is not None]
    parameters: dict[str, Value] = dict.fromkeys(part.arg for part in (*positional, *node.kwonlyargs, *extra))
    for part, default in zip(reversed(positional), reversed(node.defaults), strict=False):
        parameters[part.arg] = merge(reader.visit(default), None)
    for part, chosen in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        if chosen is not None:
            parameters[part.arg] = merge(reader.visit(chosen), None)
    return parameters


def read_comprehension(
    reader: CodeReader, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Value:
    outer = reader.scoped(NameScope("comprehension", reader.scope))
    sources = [_generator(reader, generator) for generator in node.generators]
    if isinstance(node, ast.DictComp):
        reader.visit(node.key)
        reader.visit(node.value)
        value: Value = None
    else:
        value = _produced(reader, node, sources)
    reader.scoped(outer)
    return value


def _generator(reader: CodeReader, node: ast.comprehension) -> Value:
    source = reader.visit(node.iter)
    assign(reader, node.target, elements(source))
    for condition in node.ifs:
        reader.visit(condition)
    return source


def _produced(
    reader: CodeReader, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, sources: list[Value]
) -> Value:
    """The items of a comprehension over one literal list, computed one by one: how names are spelled by codes."""
    (source, *others), generator = sources, node.generators[0]
    one_list = type(source) is Items and not others and not generator.ifs
    if type(source) is not Items or not one_list or not reader.may_iterate(len(source.values)):
        return items((reader.visit(node.elt),))
    values: list[Value] = []
    for element in source.values:
        assign(reader, generator.target, element)
        values.append(reader.visit(node.elt))
        if values[-1] is None:
            assign(reader, generator.target, elements(source))
            return items((reader.visit(node.elt),))
    return items(values)


def read_await(reader: CodeReader, node: ast.Await | ast.YieldFrom) -> Value:
    return reader.visit(node.value)


def read_yield(reader: CodeReader, node: ast.Yield) -> Value:
    if node.value is not None:
        value = reader.visit(node.value)
        if reader.closure is not None:
            reader.closure.returns = merge(reader.closure.returns, items((value,)))
    return None


EXPRESSIONS: Handlers = {
    ast.Attribute: read_attribute,
    ast.Await: read_await,
    ast.BinOp: read_binary,
    ast.BoolOp: read_either_or,
    ast.Compare: read_compare,
    ast.Constant: read_constant,
    ast.Dict: read_dict,
    ast.DictComp: read_comprehension,
    ast.FormattedValue: read_replacement,
    ast.GeneratorExp: read_comprehension,
    ast.IfExp: read_conditional,
    ast.JoinedStr: read_fstring,
    ast.Lambda: read_lambda,
    ast.List: read_sequence,
    ast.ListComp: read_comprehension,
    ast.Name: read_name,
    ast.NamedExpr: read_walrus,
    ast.Set: read_sequence,
    ast.SetComp: read_comprehension,
    ast.Slice: read_slice,
    ast.Starred: read_starred,
    ast.Subscript: read_subscript,
    ast.Tuple: read_sequence,
    ast.UnaryOp: read_unary,
    ast.Yield: read_yield,
    ast.YieldFrom: read_await,
}
