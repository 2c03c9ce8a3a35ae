"""Parts of a cell that are certain to fail, found in its syntax before any of it runs: names without a value, and
calls whose arguments do not fit. Pure: everything outside of the cell is passed in.

The rule is certainty. An expression counts only if the cell cannot get past it: it is at the top level, outside of
every branch, loop, function and class body, and outside of all that could catch its error. A name counts only if
nothing before it in the cell binds it, in any scope. Whether code that the cell calls could bind it is decided by
`cell_check`.
"""

from __future__ import annotations

import ast
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, GetSetDescriptorType, MethodType
from typing import Final

from cenote_worker.jail.rendering.bounded_text import bases
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

EXACT: Final = "__exact__"
"""Attribute of a host function's stub that binds its arguments exactly by its signature: its qualified name, and
whether an implicit first argument is missing in the signature."""

_class_dict = type.__dict__["__dict__"].__get__
_get = object.__getattribute__
_open = open
_OPEN: Final = "open"

_Event = ast.Name | ast.Call | ast.Await
"""A name is read, a call is made with all its arguments known, or the result of a call is awaited."""


@dataclass(frozen=True, slots=True)
class CertainFailure:
    """An expression that raises, unless one of the names gets a value, or another one.

    statement: the index of its statement. attribute: for a method call, its name. stand_in: an expression that raises
    the same at the same place, and does nothing else.
    """

    names: frozenset[str]
    attribute: str
    statement: int
    stand_in: CodeType


def certain_failures(
    statements: Sequence[ast.stmt],
    names: Mapping[str, object],
    builtins: Mapping[str, object],
    filename: str,
    is_watched: Callable[[FunctionType], bool],
) -> Iterator[CertainFailure]:
    """The failures of a cell, in the order of its execution.

    names: the cell's namespace. is_watched: whether a function is a user's or an injected one; calls of others are
    not checked.
    """
    opens = names.get(_OPEN, builtins.get(_OPEN)) is _open
    bound: set[str] = set()
    seen = 0
    for index, statement in enumerate(statements):
        for event, binding in _statement(statement, opens):
            wrong = None
            if not isinstance(event, ast.Name):
                if (wrong := _misfit(event, names, is_watched)) is None:
                    continue
            elif event.id in names or event.id in builtins or _is_special(event.id):
                continue
            bound |= bound_names(statements[seen:index])
            seen = index
            name, attribute = _named(event)
            relied_on = frozenset({name, _OPEN} if isinstance(statement, ast.With) else {name})
            if relied_on.isdisjoint(bound) and relied_on.isdisjoint(bound_names(binding)):
                code = _stand_in(event, wrong, filename)
                if code is not None:
                    yield CertainFailure(relied_on, attribute, index, code)
        if _never_ends_well(statement):
            return


def _is_special(name: str) -> bool:
    """Whether the kernel, Python or a library may set it at any time."""
    return name == "_" or name.startswith("__")


def _never_ends_well(node: ast.stmt) -> bool:
    """Whether nothing after it is reached."""
    if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
        return not any(isinstance(each, ast.Break) for each in ast.walk(node))
    return isinstance(node, ast.Raise)


def _named(event: _Event) -> tuple[str, str]:
    """The name that it is about, and the attribute of that."""
    if isinstance(event, ast.Name):
        return event.id, ""
    called = _call_in(event).func
    if isinstance(called, ast.Attribute):
        assert isinstance(called.value, ast.Name), "of no other call the function is known"
        return called.value.id, called.attr
    assert isinstance(called, ast.Name), "of no other call the function is known"
    return called.id, ""


def _call_in(event: ast.Call | ast.Await) -> ast.Call:
    call = event.value if isinstance(event, ast.Await) else event
    assert isinstance(call, ast.Call), "what else is awaited is no event"
    return call


# -- what a cell binds --


def bound_names(code: Iterable[ast.AST]) -> set[str]:
    """All names that any part of the code binds or deletes, in any scope."""
    bound: set[str] = set()
    waiting: list[ast.AST] = list(code)
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                bound.add(node.id)  # type: ignore[attr-defined]
            continue
        if kind is ast.Constant:
            continue
        if (naming := _NAMING.get(kind)) is not None:
            bound.update(naming(node))
        for field in node._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                waiting.extend(each for each in value if isinstance(each, ast.AST))
            elif isinstance(value, ast.AST):
                waiting.append(value)
    return bound


def _imported(node: ast.alias) -> tuple[str, ...]:
    return ((node.asname or node.name).partition(".")[0],)


def _own_name(node: ast.AST) -> tuple[str, ...]:
    name = getattr(node, "name", None)
    return () if name is None else (name,)


_NAMING: Final[Mapping[type[ast.AST], Callable[..., Sequence[str]]]] = {
    ast.alias: _imported,
    ast.arg: lambda node: (node.arg,),
    ast.Global: lambda node: node.names,
    ast.Nonlocal: lambda node: node.names,
    ast.MatchMapping: lambda node: () if node.rest is None else (node.rest,),
    **{
        kind: _own_name
        for kind in (
            ast.FunctionDef,
            ast.AsyncFunctionDef,
            ast.ClassDef,
            ast.ExceptHandler,
            ast.MatchAs,
            ast.MatchStar,
            *(getattr(ast, name) for name in ("TypeVar", "ParamSpec", "TypeVarTuple") if hasattr(ast, name)),
        )
    },
}


# -- what a cell is certain to come to, in the order of evaluation --


def _statement(node: ast.stmt, opens: bool) -> Iterator[tuple[_Event, Sequence[ast.AST]]]:
    """Each event, with the parts of the statement that may have bound names before it.

    opens: whether `open` is the builtin, whose files let every exception pass.
    """
    kind = type(node)
    if kind in (ast.With, ast.AsyncWith):
        yield from ((event, (node,)) for event in _with(node, opens))  # type: ignore[arg-type]
    elif kind in _TRIES:
        # Errors in its other parts are caught, or replaced by those in the end.
        yield from ((event, (node,)) for event in _block(node.finalbody, opens))  # type: ignore[attr-defined]
    elif (parts := _STATEMENTS.get(kind)) is not None:
        done: list[ast.AST] = []
        for part in parts(node):
            if kind in _READING_TARGETS and type(part) is ast.Name and type(part.ctx) is not ast.Load:
                yield part, tuple(done)
            done.append(part)
            for event in _expression(part):
                yield event, done
            if kind is ast.AugAssign:
                done.clear()  # its target is bound in the end


_READING_TARGETS: Final = (ast.AugAssign, ast.Delete)
"""Targets that need a value before they are bound or deleted."""


def _block(statements: Sequence[ast.stmt], opens: bool) -> Iterator[_Event]:
    for each in statements:
        yield from (event for event, _ in _statement(each, opens))
        if _never_ends_well(each):
            return


_TRIES: Final = (ast.Try, ast.TryStar)


def _with(node: ast.With, opens: bool) -> Iterator[_Event]:
    for item in node.items:
        yield from _expression(item.context_expr)
        called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
        if not (opens and isinstance(node, ast.With) and isinstance(called, ast.Name) and called.id == _OPEN):
            return  # it may swallow any later error
        if item.optional_vars is not None:
            yield from _expression(item.optional_vars)
    yield from _block(node.body, opens)


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    yield from node.decorator_list
    if not getattr(node, "type_params", None):
        yield from node.args.defaults
        yield from (each for each in node.args.kw_defaults if each is not None)


def _class(node: ast.ClassDef) -> Iterator[ast.expr]:
    yield from node.decorator_list
    if not getattr(node, "type_params", None):
        yield from node.bases
        yield from (each.value for each in node.keywords)


def _annotated(node: ast.AnnAssign) -> Iterator[ast.expr]:
    if node.value is not None:
        yield node.value
        yield node.target


_STATEMENTS: Final[Mapping[type[ast.AST], Callable[..., Iterator[ast.expr]]]] = {
    ast.Expr: lambda node: iter((node.value,)),
    ast.Assign: lambda node: iter((node.value, *node.targets)),
    ast.AugAssign: lambda node: iter((node.target, node.value)),
    ast.AnnAssign: _annotated,
    ast.For: lambda node: iter((node.iter,)),
    ast.AsyncFor: lambda node: iter((node.iter,)),
    ast.While: lambda node: iter((node.test,)),
    ast.If: lambda node: iter((node.test,)),
    ast.Match: lambda node: iter((node.subject,)),
    ast.Assert: lambda node: iter((node.test,) if __debug__ else ()),
    ast.Raise: lambda node: (each for each in (node.exc, node.cause) if each is not None),
    ast.Delete: lambda node: iter(node.targets),
    ast.FunctionDef: _definition,
    ast.AsyncFunctionDef: _definition,
    ast.ClassDef: _class,
}
"""Parts that are evaluated as soon as the statement is reached. No annotations: some versions never evaluate them."""


def _expression(node: ast.expr) -> Iterator[_Event]:
    kind = type(node)
    if kind is ast.Name:
        if type(node.ctx) is ast.Load:  # type: ignore[attr-defined]
            yield node  # type: ignore[misc]
    elif kind is ast.Call:
        yield from _call(node)  # type: ignore[arg-type]
        yield node  # type: ignore[misc]
    elif kind is ast.Await:
        yield from _expression(node.value)  # type: ignore[attr-defined]
        if type(node.value) is ast.Call:  # type: ignore[attr-defined]
            yield node  # type: ignore[misc]
    elif (parts := _EXPRESSIONS.get(kind)) is not None:
        for part in parts(node):
            if part is not None:
                yield from _expression(part)


def _call(node: ast.Call) -> Iterator[_Event]:
    yield from _expression(node.func)
    for each in node.args:
        yield from _expression(each)
    for keyword in node.keywords:
        yield from _expression(keyword.value)


_EXPRESSIONS: Final[Mapping[type[ast.AST], Callable[..., Iterator[ast.expr | None]]]] = {
    ast.Attribute: lambda node: iter((node.value,)),
    ast.Subscript: lambda node: iter((node.value, node.slice)),
    ast.Slice: lambda node: iter((node.lower, node.upper, node.step)),
    ast.Starred: lambda node: iter((node.value,)),
    ast.NamedExpr: lambda node: iter((node.value,)),
    ast.UnaryOp: lambda node: iter((node.operand,)),
    ast.BinOp: lambda node: iter((node.left, node.right)),
    ast.BoolOp: lambda node: iter(node.values[:1]),
    ast.Compare: lambda node: iter((node.left, node.comparators[0])),
    ast.IfExp: lambda node: iter((node.test,)),
    ast.Tuple: lambda node: iter(node.elts),
    ast.List: lambda node: iter(node.elts),
    ast.Set: lambda node: iter(node.elts),
    ast.Dict: lambda node: (each for pair in zip(node.keys, node.values, strict=True) for each in pair),
    ast.JoinedStr: lambda node: iter(node.values),
    ast.FormattedValue: lambda node: iter((node.value, node.format_spec)),
    ast.Lambda: lambda node: iter((*node.args.defaults, *node.args.kw_defaults)),
    **dict.fromkeys(
        (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
        lambda node: iter((node.generators[0].iter,)),
    ),
}
"""Parts that are always evaluated, in order: of `a and b` that is `a`."""


# -- whether arguments fit --


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameters:
    """Parameters of a function. positional: names, the first `positional_only` of which cannot be given by keyword.

    optional: names with a default. bound: whether the first argument is implicit. raises_late: its result has to be
    awaited before it raises.
    """

    qualname: str
    positional: tuple[str, ...]
    positional_only: int
    keyword_only: tuple[str, ...]
    optional: frozenset[str]
    takes_more: bool
    takes_any_keyword: bool
    is_bound: bool = False
    raises_late: bool = False


def _misfit(
    event: ast.Call | ast.Await, names: Mapping[str, object], is_watched: Callable[[FunctionType], bool]
) -> _Parameters | None:
    """The parameters that a call does not fit; None if it fits, or may."""
    call = _call_in(event)
    if any(type(each) is ast.Starred for each in call.args) or any(
        each.arg is None for each in call.keywords
    ):
        return None
    parameters = _called(call.func, names, is_watched)
    if parameters is None or parameters.raises_late is not (event is not call):
        return None
    given = len(call.args) + parameters.is_bound
    return None if _fits(parameters, given, {each.arg or "" for each in call.keywords}) else parameters


def _fits(parameters: _Parameters, given: int, keywords: set[str]) -> bool:
    """given: how many positional arguments."""
    positional = parameters.positional
    if given > len(positional) and not parameters.takes_more:
        return False
    by_keyword = {*positional[parameters.positional_only :], *parameters.keyword_only}
    if not (keywords <= by_keyword or parameters.takes_any_keyword):
        return False
    named = {*positional[max(given, parameters.positional_only) :], *parameters.keyword_only}
    if keywords & (by_keyword - named):  # given twice
        return False
    needed = {*positional[given:], *parameters.keyword_only} - parameters.optional
    return needed <= keywords & by_keyword


def _called(
    function: ast.expr, names: Mapping[str, object], is_watched: Callable[[FunctionType], bool]
) -> _Parameters | None:
    """Parameters of a function that is called by its name, or as a method of a named object."""
    value: object
    is_bound = False
    if type(function) is ast.Name:
        value = names.get(function.id)
    elif type(function) is ast.Attribute and type(function.value) is ast.Name:
        if function.value.id not in names:
            return None
        value, is_bound = _method(names[function.value.id], function.attr)
    else:
        return None
    if type(value) is MethodType:
        value, is_bound = value.__func__, True
    return parameters_of(value, is_bound) if type(value) is FunctionType and is_watched(value) else None


def _method(owner: object, name: str) -> tuple[object, bool]:
    """The value of an attribute, unless user code determines it, and whether its first argument is the object."""
    kind = type(owner)
    if type(kind) not in (type, ABCMeta):
        return None, False
    classes = [_class_dict(each) for each in bases(kind) if each is not object]
    if any("__getattribute__" in each for each in classes):
        return None, False
    found = next((each[name] for each in classes if name in each), None)
    own = _own_attributes(owner, classes)
    if own is None:
        return None, False
    if name in own:
        return (own[name], False) if found is None else (None, False)
    if type(found) is staticmethod:
        return found.__func__, False
    if type(found) is classmethod:
        return found.__func__, True
    return found, True


def _own_attributes(owner: object, classes: Sequence[Mapping[str, object]]) -> Mapping[str, object] | None:
    """None if a class customizes them."""
    found = next((each["__dict__"] for each in classes if "__dict__" in each), None)
    if found is None:
        return {}
    if type(found) is not GetSetDescriptorType:
        return None
    own = _get(owner, "__dict__")
    return own if type(own) is dict else None


_VARIABLE_POSITIONAL: Final = 0x04
_VARIABLE_KEYWORD: Final = 0x08
_COROUTINE: Final = 0x80


def parameters_of(function: FunctionType, is_bound: bool = False) -> _Parameters | None:
    """The parameters as Python will bind them: by the function's code, not its claimed signature. For a stub of a
    client's function, those of its signature, if that is exactly known."""
    if EXACT in vars(function):
        return _of_client(function)
    code = function.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    keyword_only = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = function.__defaults__ or ()
    optional = {*positional[len(positional) - len(defaults) :], *(function.__kwdefaults__ or ())}
    return _Parameters(
        qualname=function.__qualname__,
        positional=positional,
        positional_only=code.co_posonlyargcount,
        keyword_only=keyword_only,
        optional=frozenset(optional),
        takes_more=bool(code.co_flags & _VARIABLE_POSITIONAL),
        takes_any_keyword=bool(code.co_flags & _VARIABLE_KEYWORD),
        is_bound=is_bound,
    )


def _of_client(function: FunctionType) -> _Parameters | None:
    signature, exact = vars(function).get("__signature__"), vars(function)[EXACT]
    if type(signature) is not inspect.Signature:
        return None
    qualname, is_bound = exact
    kinds: dict[object, list[str]] = {}
    for each in signature.parameters.values():
        kinds.setdefault(each.kind, []).append(each.name)
    only = [*(["(self)"] if is_bound else []), *kinds.get(inspect.Parameter.POSITIONAL_ONLY, ())]
    return _Parameters(
        qualname=qualname,
        positional=(*only, *kinds.get(inspect.Parameter.POSITIONAL_OR_KEYWORD, ())),
        positional_only=len(only),
        keyword_only=tuple(kinds.get(inspect.Parameter.KEYWORD_ONLY, ())),
        optional=frozenset(
            each.name for each in signature.parameters.values() if each.default is not each.empty
        ),
        takes_more=inspect.Parameter.VAR_POSITIONAL in kinds,
        takes_any_keyword=inspect.Parameter.VAR_KEYWORD in kinds,
        is_bound=is_bound,
        raises_late=bool(function.__code__.co_flags & _COROUTINE),
    )


# -- an expression that fails alike --


def _stand_in(event: _Event, wrong: _Parameters | None, filename: str) -> CodeType | None:
    """None if there is no such expression after all."""
    if isinstance(event, ast.Name):
        name = ast.copy_location(ast.Name(event.id, ast.Load()), event)
        return _compiled(name, filename)
    assert wrong is not None, "a call that fits does not fail"
    call = _call_in(event)
    code = _named_alike(_compiled(_call_of_nothing(call, wrong), filename), wrong.qualname)
    return code if code is not None and _raises(code, call) else None


def _compiled(node: ast.expr, filename: str) -> CodeType:
    code: CodeType = compile(ast.Expression(node), filename, "eval", dont_inherit=True)
    return code


def _call_of_nothing(call: ast.Call, wrong: _Parameters) -> ast.expr:
    """The same call of a function with these parameters that does nothing, with None for each argument. The call's
    function is looked up as in the call itself, since it depends on that."""
    root = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    nothing = ast.Constant(None)
    names = [ast.arg(each) for each in wrong.positional]
    arguments = ast.arguments(
        posonlyargs=names[: wrong.positional_only],
        args=names[wrong.positional_only :],
        vararg=ast.arg("(others)") if wrong.takes_more else None,
        kwonlyargs=[ast.arg(each) for each in wrong.keyword_only],
        kw_defaults=[nothing if each in wrong.optional else None for each in wrong.keyword_only],
        kwarg=ast.arg("(keywords)") if wrong.takes_any_keyword else None,
        defaults=[nothing for each in wrong.positional if each in wrong.optional],
    )
    function = ast.Subscript(
        ast.Tuple([root, ast.Lambda(arguments, nothing)], ast.Load()), ast.Constant(1), ast.Load()
    )
    made = ast.Call(
        function,
        [nothing for _ in range(len(call.args) + wrong.is_bound)],
        [ast.keyword(each.arg, nothing) for each in call.keywords],
    )
    for node in ast.walk(made):
        if node is not root and "lineno" in node._attributes:
            ast.copy_location(node, call)
    return made


def _named_alike(code: CodeType, qualname: str) -> CodeType | None:
    """The code, with that name for its function, which Python's message contains."""
    constants = [
        each.replace(co_name=qualname.rpartition(".")[2], co_qualname=qualname)
        if type(each) is CodeType
        else each
        for each in code.co_consts
    ]
    return code.replace(co_consts=tuple(constants))


def _raises(code: CodeType, call: ast.Call) -> bool:
    """Whether it raises, with nothing else running. A call of an existing value is not made."""
    root = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    assert isinstance(root, ast.Name), "of no other call the function is known"
    try:
        FunctionType(code, {root.id: None, "__builtins__": {}})()
    except TypeError:
        return True
    return False
