"""Arrays that a cell is going to rewrite, as a whole or in part, according to its syntax, before it runs.

Nothing of such an array would be shared with the copy for long, and giving the copy up beforehand costs a tenth of
giving it up halfway. Only certain cases count: plain statements that come before anything that may take time, and
those of a user's function that is called then (`cost_forecast.py`). Other sweeps are found by the warden
(`snapshot_cost_monitor.py`). Of pandas only `loc` and `iloc` are covered: its other operations in place mostly write
to new memory.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MOST: Final = 20
"""Statements that are looked at."""

_LONGEST: Final = 200
"""Nodes of a statement that are looked at: 0.1 ms. Longer data literals take time to run, too."""

_PLAIN: Final = (
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.Pass,
    ast.Global,
    ast.Return,
)
_SLOW: Final = (
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.MatMult,
    ast.Pow,
    ast.Starred,
)
"""Syntax that may run code of any length, or compute for long with few operands. So may calls, except for these."""

_NUMPY: Final = frozenset({"np", "numpy"})
_ELEMENTWISE: Final = frozenset({
    "abs", "absolute", "add", "ceil", "clip", "copyto", "cos", "divide", "exp", "float32", "float64", "floor",
    "floor_divide", "int32", "int64", "log", "maximum", "minimum", "multiply", "negative", "place", "put", "putmask",
    "rint", "round", "sign", "sin", "sqrt", "square", "subtract", "tanh", "true_divide", "where",
})  # fmt: skip
_OF_ARRAYS: Final = frozenset({"all", "any", "clip", "max", "mean", "min", "round", "std", "sum", "var"})
"""Methods that take no longer than rewriting their array."""

_IN_PLACE: Final = frozenset({"byteswap", "fill", "partition", "sort"})
"""Methods that rewrite all of their array."""

_SORTING: Final = frozenset({"partition", "sort"})
"""Those that write with masks."""

_AT_PLACES: Final = frozenset({"place", "put", "putmask"})
"""Functions of numpy that write to the first argument at the places in the second."""

_TWO_OPERANDS: Final = frozenset({
    "add", "divide", "floor_divide", "maximum", "minimum", "multiply", "subtract", "true_divide",
})  # fmt: skip
"""The third argument of these is the one that they write to."""

_QUICK: Final = frozenset({"print", "len", "float", "int"})


_EVERY_ROW: Final = 2**62
"""Times that a loop over all rows of an array runs, if not known: more than there are rows."""

By = Literal["", "loc", "iloc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAhead:
    """A function that is called by its name, before anything that takes time.

    arguments, keywords: names passed; None for what is no name, or was just bound. defined: functions that the same
    code has defined before.
    """

    function: str
    arguments: tuple[str | None, ...]
    keywords: Mapping[str, str | None]
    defined: Mapping[str, ast.FunctionDef]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPart:
    """The part of a name's value that is written to, if it is an array.

    names: the names in the index, as they are in the namespace. by: the accessor that takes the index, if not the
    array itself: then the array is that of a pandas frame or series. times: how often, each time at other places.
    """

    array: str
    index: ast.expr
    names: Mapping[str, str]
    by: By = ""
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """A name whose value is sorted, if it is an array."""

    array: str


Rewritten = str | Sorted | SweptPart
"""A name whose value is rewritten as a whole, if it is an array, or sorted, or the part of it that is written to."""

Ahead = Rewritten | CallAhead
"""That, or a call, whose effect is still to be found. Nothing is known of what comes after a call."""


def sweeps(body: Sequence[ast.stmt]) -> tuple[Ahead, ...]:
    """What code does to whole arrays before it does anything that takes time."""
    ahead = list(_swept(body[:_MOST], {}, set(), {}))
    return tuple(each for index, each in enumerate(ahead) if each not in ahead[:index])


def may_sweep(body: Sequence[ast.stmt]) -> bool:
    """Whether `sweeps` may give anything. This takes microseconds, and most code does nothing of the kind."""
    return any(map(_is_of_interest, body[:_MOST]))


def _swept(
    statements: Sequence[ast.stmt],
    defined: dict[str, ast.FunctionDef],
    bound: set[str],
    views: dict[str, str | SweptPart],
) -> Iterator[Ahead]:
    """defined, bound: by the same code, before. What it binds is new memory, except for views of other memory."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef) and _is_defined_at_once(statement):
            defined[statement.name] = statement
        elif isinstance(statement, ast.For) and (times := _times(statement)):
            counter = {node.id for node in nodes(statement.target) if isinstance(node, ast.Name)}
            for each in _swept(statement.body[:_MOST], defined, bound, views):
                if isinstance(each, SweptPart) and not counter.isdisjoint(each.names):
                    yield from _each_time(each, counter, times)
                elif isinstance(each, CallAhead) or counter.isdisjoint(_words(each)):
                    yield each
            return
        elif call := _called(statement):
            if _is_quick(*call.args, *(keyword.value for keyword in call.keywords)):
                yield _ahead(call, defined, bound)
            return
        elif (whole := _in_place(statement)) is not None:
            yield from [whole] if bound.isdisjoint(_words(whole)) else []
            return
        elif not _is_plain(statement):
            return
        for written in _rewritten(statement):
            each = views.get(written, written) if isinstance(written, str) else written
            yield from [each] if bound.isdisjoint(_words(each)) else []
        if isinstance(statement, ast.Return):
            return
        if isinstance(statement, ast.Assign):
            names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
            seen = [each for each in _viewed(statement.value) if bound.isdisjoint(_words(each))]
            for name in names:
                views.pop(name, None)
                views.update({name: seen[0]} if seen else {})
            bound.update(names)


def _is_of_interest(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.For):
        return _times(statement) > 0
    return bool(_rewritten(statement) or _called(statement) or _in_place(statement))


def _ahead(call: ast.Call, defined: Mapping[str, ast.FunctionDef], bound: Collection[str]) -> CallAhead:
    def given(value: ast.expr) -> str | None:
        return value.id if isinstance(value, ast.Name) and value.id not in bound else None

    assert isinstance(call.func, ast.Name)
    return CallAhead(
        function=call.func.id,
        arguments=tuple(map(given, call.args)),
        keywords={keyword.arg: given(keyword.value) for keyword in call.keywords if keyword.arg},
        defined=dict(defined),
    )


def _called(statement: ast.stmt) -> ast.Call | None:
    """A call of a function by its name that is the whole statement, if it is no builtin."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call):
            return call if name not in _QUICK else None
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Name(id=name)) as call):
            return call if name not in _QUICK else None
    return None


def _is_defined_at_once(function: ast.FunctionDef) -> bool:
    """Whether defining it runs nothing that takes time."""
    defaults = [each for each in function.args.kw_defaults if each is not None]
    return not function.decorator_list and _is_quick(*function.args.defaults, *defaults)


def _times(loop: ast.For) -> int:
    """How often its body certainly runs, if an array that it is about has rows; 0 for other loops."""
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))], keywords=[]):
            return max(0, count)
        case ast.Call(func=ast.Name(id="range"), args=[rows], keywords=[]) if _is_of_rows(rows):
            return _EVERY_ROW
    return 0


def _is_of_rows(count: ast.expr) -> bool:
    match count:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name()]):
            return True
        case ast.Subscript(value=ast.Attribute(value=ast.Name(), attr="shape"), slice=ast.Constant(value=0)):
            return True
    return False


def _each_time(part: SweptPart, counter: Collection[str], times: int) -> Iterator[SweptPart]:
    """`a[i]` and `a[i, ...]` in a loop over `i`, as a part with the first row it reaches."""
    places = part.index.elts if isinstance(part.index, ast.Tuple) else [part.index]
    names = {word: known for word, known in part.names.items() if word not in counter}
    first, *others = places
    of_others = {node.id for each in others for node in nodes(each) if isinstance(node, ast.Name)}
    if isinstance(first, ast.Name) and of_others.isdisjoint(counter) and not part.by and part.times == 1:
        index = ast.Tuple(elts=[ast.Constant(value=0), *others], ctx=ast.Load())
        yield SweptPart(array=part.array, index=index, names=names, times=times)


def _rewritten(statement: ast.stmt) -> list[str | SweptPart]:
    return [each for target in _targets(statement) for each in _written_to(target)]


def _words(written: Rewritten) -> Collection[str]:
    if isinstance(written, str):
        return (written,)
    return (written.array, *(written.names if isinstance(written, SweptPart) else ()))


def _viewed(value: ast.expr) -> Iterator[str | SweptPart]:
    """The array that a value is a view of, if it is a view of an array at all."""
    match value:
        case ast.Subscript(slice=ast.Slice()):
            yield from _written_to(value)
        case ast.Subscript(slice=ast.Tuple(elts=parts)) if any(isinstance(part, ast.Slice) for part in parts):
            yield from _written_to(value)
        case ast.Attribute(value=ast.Name(id=name), attr="T"):
            yield name


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.AugAssign(target=target):
            return [target]
        case ast.Assign(targets=targets):
            return [target for target in targets if isinstance(target, ast.Subscript)]
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[array, places, *_])) if (
            name in _AT_PLACES
        ):
            return [ast.Subscript(value=array, slice=places, ctx=ast.Store())]
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=function), args=arguments, keywords=keywords)):
            return [*_written(function, arguments), *(each.value for each in keywords if each.arg == "out")]
    return []


def _written(function: str, arguments: list[ast.expr]) -> list[ast.expr]:
    """The arguments that a function of numpy writes to."""
    if function == "copyto":
        return arguments[:1]
    return arguments[2:3] if function in _TWO_OPERANDS else []


def _in_place(statement: ast.stmt) -> str | Sorted | None:
    """The array that a rewriting method is called on; None for another statement."""
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=values)
        ) if method in _IN_PLACE and _is_quick(*values):
            return Sorted(array=name) if method in _SORTING else name
    return None


def _is_plain(statement: ast.stmt) -> bool:
    return isinstance(statement, _PLAIN) and _is_quick(statement)


def _is_quick(*code: ast.AST) -> bool:
    found = list(islice((node for part in code for node in nodes(part)), _LONGEST + 1))
    return len(found) <= _LONGEST and not any(map(_is_slow, found))


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Like `ast.walk`, which uses builtins that a cell may have broken. Trees may be deeper than the stack, and
    wide."""
    waiting = [iter([node])]
    while waiting:
        for each in waiting[-1]:
            yield each
            waiting.append(_children(each))
            break
        else:
            waiting.pop()


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name in node._fields:
        value = getattr(node, name, None)
        children = value if isinstance(value, list) else (value,)
        yield from (child for child in children if isinstance(child, ast.AST))


def _is_slow(node: ast.AST) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=module), attr="einsum"),
            args=[ast.Constant(value=str(subscripts)), *_],
        ) if module in _NUMPY:
            return not _is_elementwise(subscripts)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
            return name not in (_ELEMENTWISE if module in _NUMPY else _OF_ARRAYS)
        case ast.Call(func=ast.Name(id=name)):
            return name not in _QUICK
    return isinstance(node, (ast.Call, *_SLOW))


def _is_elementwise(subscripts: str) -> bool:
    """Whether `numpy.einsum` sums nothing up."""
    operands, _, result = subscripts.partition("->")
    return bool(result) and set(operands) - set(", ") == set(result) - set(" ")


def _written_to(target: ast.expr) -> Iterator[str | SweptPart]:
    """The name of a variable, if all of its value is meant: `a`, `a[:]`, `a[...]`, `a[:, :]`."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=parts)) if all(map(is_all, parts)):
            yield name
        case ast.Subscript(value=ast.Name(id=name), slice=part) if is_all(part):
            yield name
        case ast.Subscript(value=ast.Name(id=name), slice=part) if _is_quick(part):
            yield SweptPart(array=name, index=part, names=_same(part))
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=name), attr="loc" | "iloc" as by), slice=part
        ) if _is_quick(part):
            yield SweptPart(array=name, index=part, names=_same(part), by="loc" if by == "loc" else "iloc")


def _same(part: ast.expr) -> dict[str, str]:
    return {node.id: node.id for node in nodes(part) if isinstance(node, ast.Name)}


def is_all(part: ast.expr) -> bool:
    match part:
        case ast.Slice(lower=None, upper=None, step=None):
            return True
        case ast.Constant(value=value):
            return value is ...
    return False
