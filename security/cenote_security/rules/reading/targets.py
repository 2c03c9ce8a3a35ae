"""What an assignment binds: names, attributes, items, and any nesting of them."""

from __future__ import annotations

import ast

from cenote_security.rules.reading.members import access, elements, item
from cenote_security.rules.reading.reader import Reader
from cenote_security.rules.reading.value import Const, Items, Value, items


def assign(reader: Reader, target: ast.expr, value: Value) -> None:
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


def _assign_item(reader: Reader, target: ast.Subscript, value: Value) -> None:
    owner = reader.visit(target.value)
    key = Const(target.slice.value) if type(target.slice) is ast.Constant else reader.visit(target.slice)
    if type(key) is Const and isinstance(key.value, str):
        if owner in ("globals()", "locals()"):
            reader.scope.module().set(key.value, value, certain=False)
        elif owner == "sys.modules" or owner == "builtins":
            item(reader, target, owner, key)
        reader.keep(key.value, value)


def _unpack(reader: Reader, targets: list[ast.expr], value: Value) -> None:
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


def unbind(reader: Reader, target: ast.expr) -> None:
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
