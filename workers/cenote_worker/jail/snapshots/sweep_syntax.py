"""Arrays that a cell is going to rewrite, all of them or parts, as its syntax says before it runs.

Nothing of such an array would be shared with the copy for long, and giving the copy up beforehand costs a tenth of
what giving it up halfway does. Only what is certain counts: plain statements that come before anything that may
take its time, and those of a function of the user's that is called then (`cost_forecast.py`). What else sweeps is
found out by the warden (`snapshot_cost_monitor.py`). Of pandas only `loc` and `iloc` are among these: what else it
does in place it mostly does to new memory.
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
"""Nodes of one that are: 0.1 ms. Data that is written out as code takes its time to run, too."""

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
"""What may run code of any length, or compute for long with few operands. So may calls, but for these."""

_NUMPY: Final = frozenset({"np", "numpy"})
_ELEMENTWISE: Final = frozenset({
    "abs", "absolute", "add", "ceil", "clip", "copyto", "cos", "divide", "exp", "float32", "float64", "floor",
    "floor_divide", "int32", "int64", "log", "maximum", "minimum", "multiply", "negative", "place", "put", "putmask",
    "rint", "round", "sign", "sin", "sqrt", "square", "subtract", "tanh", "true_divide", "where",
})  # fmt: skip
_OF_ARRAYS: Final = frozenset({"all", "any", "clip", "max", "mean", "min", "round", "std", "sum", "var"})
"""Methods that take no longer than to rewrite what they are called of."""

_IN_PLACE: Final = frozenset({"byteswap", "fill", "partition", "sort"})
"""Methods that rewrite all of it."""

_SORTING: Final = frozenset({"partition", "sort"})
"""Those that do so by masks."""

_AT_PLACES: Final = frozenset({"place", "put", "putmask"})
"""Functions of numpy's that write to the first argument where the second says."""

_TWO_OPERANDS: Final = frozenset({
    "add", "divide", "floor_divide", "maximum", "minimum", "multiply", "subtract", "true_divide",
})  # fmt: skip
"""The third argument of these is what they write to."""

_QUICK: Final = frozenset({"print", "len", "float", "int"})


_EVERY_ROW: Final = 2**62
"""Times that a loop over all rows of an array runs, if nobody has counted them: more than there are."""

By = Literal["", "loc", "iloc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAhead:
    """A function that is called by its name, before anything that takes time.

    arguments, keywords: names that it is given; None for what is no name, or was bound just now. defined: functions
    that the same code has defined before.
    """

    function: str
    arguments: tuple[str | None, ...]
    keywords: Mapping[str, str | None]
    defined: Mapping[str, ast.FunctionDef]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPart:
    """What of the value of a name is written to, if it is an array.

    names: what those in the index are called in the namespace. by: what the index is given to, if not to the array
    itself: then it is one of a frame or series of pandas. times: how often, at places of their own.
    """

    array: str
    index: ast.expr
    names: Mapping[str, str]
    by: By = ""
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """A name whose value is put in order, if it is an array."""

    array: str


Rewritten = str | Sorted | SweptPart
"""A name whose value is rewritten as a whole, if it is an array, or put in order, or what of it is written to."""

Ahead = Rewritten | CallAhead
"""That, or a call, of which it is to be found out. Nothing is known of what comes behind a call."""


def sweeps(body: Sequence[ast.stmt]) -> tuple[Ahead, ...]:
    """What code does to whole arrays before it does anything that takes time."""
    ahead = list(_swept(body[:_MOST], {}, set(), {}))
    return tuple(each for index, each in enumerate(ahead) if each not in ahead[:index])


def may_sweep(body: Sequence[ast.stmt]) -> bool:
    """Whether `sweeps` may give anything: most code does nothing of the kind, as this tells in microseconds."""
    return any(map(_is_of_interest, body[:_MOST]))


def _swept(
    statements: Sequence[ast.stmt],
    defined: dict[str, ast.FunctionDef],
    bound: set[str],
    views: dict[str, str | SweptPart],
) -> Iterator[Ahead]:
    """defined, bound: by the same code, before; what is bound by it is new memory, but for views of what is not."""
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
    """A call that is all that a statement does, of a function by its name, if it is none of Python's own."""
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
    """How often its body certainly runs, at least if an array that it is about has rows; 0 for other loops."""
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
    """`a[i]` and `a[i, ...]` in a loop over `i`, as the first of what it reaches."""
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
    """Of what array a value is a view, if it is one of an array at all."""
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
    """Of the arguments of a function of numpy's."""
    if function == "copyto":
        return arguments[:1]
    return arguments[2:3] if function in _TWO_OPERANDS else []


def _in_place(statement: ast.stmt) -> str | Sorted | None:
    """What a method of those is called of that rewrite it; None for another statement."""
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
    """As `ast.walk`, which goes by builtins that a cell may have ruined. Trees may be deeper than calls, and wide."""
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
    """Of `numpy.einsum`: nothing is summed up."""
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
