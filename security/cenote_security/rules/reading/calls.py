"""How calls are read: of functions with a meaning of their own, of the cell's own functions, of unknown ones."""

from __future__ import annotations

import ast

from cenote_security.rules.reading import constant_folding
from cenote_security.rules.reading.abstract_values import (
    BUILTIN_CLASSES,
    Bound,
    Closure,
    Const,
    Either,
    Getter,
    Items,
    Partial,
    Table,
    Value,
    items,
    merge,
    merge_all,
)
from cenote_security.rules.reading.expressions import quiet
from cenote_security.rules.reading.known_names import names
from cenote_security.rules.reading.members import LONGEST_PATH, access, elements, item
from cenote_security.rules.reading.reader import CodeReader, Handlers
from cenote_security.rules.reading.reflection import SPECIAL, Arguments, run_query

QUIET_METHODS = names(
    """
    get pop startswith endswith replace split strip count find index info debug warning error write
    __getitem__ query eval
    """
)
"""Methods that are given strings of any content: one that spells a dunder name is no sign of reflection."""

ITEM_METHODS = frozenset({"get", "pop", "setdefault", "__getitem__"})
GETATTR_METHODS = frozenset({"__getattribute__", "__getattr__", "__setattr__", "__delattr__"})
IMPORT_METHODS = frozenset({"import_module", "load_module", "find_module"})
_OVER_ITEMS = frozenset({"builtins.map", "itertools.starmap", "builtins.filter"})


def read_call(reader: CodeReader, node: ast.Call) -> Value:
    function = reader.visit(node.func)
    method = node.func.attr if type(node.func) is ast.Attribute else ""
    arguments = _arguments(reader, node, quietly=_takes_any_text(function, method))
    if type(node.func) is ast.Call and type(function) is str:
        reader.use_function(node.func, function)  # no name or attribute stands for it: `type(f)(...)`
    result = call(reader, node, function, arguments, method)
    for value in arguments.positional:
        if type(value) is str and value in reader.modules:
            return merge(result, value)  # a module that is handed to a function may be handed back
    return result


def _takes_any_text(function: Value, method: str) -> bool:
    if method in QUIET_METHODS:
        return True
    return type(function) is str and (function in SPECIAL or function == "builtins.print")


def _arguments(reader: CodeReader, node: ast.Call, *, quietly: bool) -> Arguments:
    positional: list[Value] = []
    for argument in node.args:
        if type(argument) is ast.Starred:
            inner = reader.visit(argument.value)
            positional.extend(inner.values if type(inner) is Items else (elements(inner),))
        else:
            positional.append(quiet(reader, argument) if quietly else reader.visit(argument))
    if not node.keywords:
        return Arguments(tuple(positional))
    named, more = _keywords(reader, node, quietly=quietly)
    return Arguments(tuple(positional), named, more)


def _keywords(reader: CodeReader, node: ast.Call, *, quietly: bool) -> tuple[dict[str, Value], bool]:
    named: dict[str, Value] = {}
    more = False
    for keyword in node.keywords:
        value = quiet(reader, keyword.value) if quietly else reader.visit(keyword.value)
        if keyword.arg is not None:
            named[keyword.arg] = value
            reader.keep(keyword.arg, value)
        elif type(value) is Table:
            named.update((str(key), meaning) for key, meaning in value.entries.items())
        else:
            more = True
    return named, more


def call(reader: CodeReader, node: ast.AST, function: Value, arguments: Arguments, method: str = "") -> Value:
    """What calling the value gives; `method` is its name when nothing else is known of it."""
    if function is None:
        return _call_unknown(reader, node, method, arguments)
    if type(function) is str:
        return _call_path(reader, node, function, arguments)
    if type(function) is Either:
        return merge_all(tuple(call(reader, node, option, arguments, method) for option in function.options))
    if type(function) is Closure:
        return _call_closure(reader, function, arguments)
    if type(function) is Bound:
        return _call_bound(reader, node, function, arguments)
    if type(function) is Getter:
        return _call_getter(reader, node, function, arguments)
    if type(function) is Partial:
        everything = Arguments(
            (*function.arguments, *arguments.positional),
            {**(function.named or {}), **(arguments.named or {})},
            function.more or arguments.more,
        )
        return call(reader, node, function.function, everything)
    return None


def _call_unknown(reader: CodeReader, node: ast.AST, method: str, arguments: Arguments) -> Value:
    if method in reader.watch.methods:
        reader.report("method", method, node)
    if method in reader.keywords_watched and (arguments.named or arguments.more):
        for keyword in _watched_keywords(reader, method, arguments):
            if f"{method}({keyword})" in reader.watch.methods:
                reader.report("method", f"{method}({keyword})", node)
    if method in ("query", "eval"):
        run_query(reader, node, arguments)
    return _call_by_method(reader, node, None, method, arguments)


def _watched_keywords(reader: CodeReader, name: str, arguments: Arguments) -> list[str]:
    """The keywords that are watched for and given, or may be; one that is False or None says no."""
    found = []
    for keyword in reader.keywords_watched[name]:
        value = (arguments.named or {}).get(keyword, Const(None) if not arguments.more else None)
        if not (type(value) is Const and (value.value is None or value.value is False)):
            found.append(keyword)
    return found


def _call_by_method(
    reader: CodeReader, node: ast.AST, owner: Value, method: str, arguments: Arguments
) -> Value:
    if method in ITEM_METHODS and arguments.positional:
        return item(reader, node, owner, arguments.get(0))
    if method in GETATTR_METHODS and arguments.positional:
        return _getattr_method(reader, node, owner, method, arguments)
    if method in IMPORT_METHODS and type(arguments.get(0)) is Const:
        return SPECIAL["importlib.import_module"](reader, node, arguments)
    return None


def _getattr_method(
    reader: CodeReader, node: ast.AST, owner: Value, method: str, arguments: Arguments
) -> Value:
    """`x.__getattribute__(name)`, or unbound: `object.__getattribute__(x, name)`."""
    function, bound = ("setattr", 2) if method == "__setattr__" else ("getattr", 1)
    if len(arguments.positional) <= bound:
        arguments = Arguments((owner, *arguments.positional))
    return SPECIAL[f"builtins.{function}"](reader, node, arguments)


def _call_path(reader: CodeReader, node: ast.AST, function: str, arguments: Arguments) -> Value:
    tail = function[function.rfind(".") + 1 :]
    if tail in reader.keywords_watched and (arguments.named or arguments.more):
        for keyword in _watched_keywords(reader, tail, arguments):
            reader.use_function(node, f"{function}({keyword})")
    special = SPECIAL.get(function)
    if special is not None:
        result = special(reader, node, arguments)
        return result if result is not None else f"{function}()"
    if function in BUILTIN_CLASSES:
        reader.use_function(node, function)
    if function in _OVER_ITEMS:
        return _over_items(reader, node, arguments)
    folded = _folded(function, arguments)
    if folded is not None:
        return folded
    owner, _, method = function.rpartition(".")
    found = _call_by_method(reader, node, owner, method, arguments)
    if found is not None:
        return found
    if method in ("query", "eval") and owner != "builtins":
        run_query(reader, node, arguments)
    return f"{function}()" if len(function) < LONGEST_PATH else None


def _folded(function: str, arguments: Arguments) -> Value:
    if arguments.named or not arguments.positional:
        return None
    if function not in constant_folding.FUNCTIONS and function.startswith(
        ("builtins.str.", "builtins.bytes.")
    ):
        return constant_folding.method(
            arguments.positional[0], function.rpartition(".")[2], arguments.positional[1:]
        )
    return constant_folding.call(function, arguments.positional)


def _over_items(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`map(f, xs)`: what f gives for each of the items, as far as they are known."""
    function, *sources = arguments.positional or (None,)
    known = [source.values for source in sources if type(source) is Items]
    if len(known) != len(sources) or not known or not reader.may_iterate(max(map(len, known))):
        call(reader, node, function, Arguments(tuple(elements(source) for source in sources)))
        return None
    rows = zip(*known, strict=False)
    return items(call(reader, node, function, Arguments(tuple(row))) for row in rows)


def _call_closure(reader: CodeReader, closure: Closure, arguments: Arguments) -> Value:
    """The body is read later; what this call passes is noted for it, what it returned in a former pass is known."""
    parameters = closure.node.args
    names = [part.arg for part in (*parameters.posonlyargs, *parameters.args)]
    passed = list(zip(names, arguments.positional, strict=False))
    if arguments.named:
        passed.extend((name, value) for name, value in arguments.named.items() if name in closure.parameters)
    changed = False
    for name, value in passed:
        if value is not None:
            merged = merge(closure.parameters[name], value)
            changed = changed or merged != closure.parameters[name]
            closure.parameters[name] = merged
    if changed and closure.readings:
        reader.read_again(closure)
    return reader.returned.get(closure.node)


def _call_bound(reader: CodeReader, node: ast.AST, function: Bound, arguments: Arguments) -> Value:
    if type(function.owner) is Table or function.name in ITEM_METHODS:
        return _call_by_method(reader, node, function.owner, function.name, arguments)
    if arguments.named:
        return None
    value = constant_folding.method(function.owner, function.name, arguments.positional)
    if type(value) is Const and type(value.value) is str:
        reader.spelled(node, value.value)
    return value


def _call_getter(reader: CodeReader, node: ast.AST, getter: Getter, arguments: Arguments) -> Value:
    value = arguments.get(0)
    if getter.items:
        return item(reader, node, value, Const(getter.names[0]))
    for name in getter.names:
        value = access(reader, node, value, name)
    return value


CALLS: Handlers = {ast.Call: read_call}
