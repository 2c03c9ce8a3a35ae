"""Every kind of syntax is handled explicitly; unknown syntax is refused, not skipped."""

from __future__ import annotations

import ast

import pytest

from cenote_security.rules.findings import WatchedNames
from cenote_security.rules.reading.abstract_values import Memory
from cenote_security.rules.reading.syntax import HANDLERS, Reading, UnreadableSyntaxError

READ_BY_MATCH = {
    ast.MatchAs,
    ast.MatchClass,
    ast.MatchMapping,
    ast.MatchOr,
    ast.MatchSequence,
    ast.MatchSingleton,
    ast.MatchStar,
    ast.MatchValue,
}
READ_BY_THEIR_PARENTS = {
    ast.alias,
    ast.arg,
    ast.arguments,
    ast.comprehension,
    ast.ExceptHandler,
    ast.keyword,
    ast.match_case,
    ast.withitem,
}
ROOTS = {ast.Module, ast.Interactive, ast.Expression, ast.FunctionType, ast.TypeIgnore}
WITHOUT_CONTENT = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
NEVER_PARSED = {
    "AugLoad",
    "AugStore",
    "Bytes",
    "Ellipsis",
    "ExtSlice",
    "Index",
    "NameConstant",
    "Num",
    "Param",
    "slice",
    "Str",
    "Suite",
}


def concrete_nodes() -> set[type[ast.AST]]:
    """All classes of nodes that this Python's parser can make."""
    kinds: set[type[ast.AST]] = set()
    todo = [ast.AST]
    while todo:
        kind = todo.pop()
        kinds.add(kind)
        todo.extend(sub for sub in kind.__subclasses__() if sub.__module__ in ("ast", "_ast"))
    return {kind for kind in kinds if not _is_abstract(kind) and kind.__name__ not in NEVER_PARSED}


def _is_abstract(kind: type[ast.AST]) -> bool:
    return (
        any(
            sub.__module__ in ("ast", "_ast") and sub.__name__ not in NEVER_PARSED
            for sub in kind.__subclasses__()
        )
        or kind is ast.AST
    )


def test_all_syntax_of_this_python_is_classified() -> None:
    """A new kind of node fails here first, and must be added to its place."""
    known = set(HANDLERS) | READ_BY_MATCH | READ_BY_THEIR_PARENTS | ROOTS
    unknown = {kind.__name__ for kind in concrete_nodes() - known if not issubclass(kind, WITHOUT_CONTENT)}
    assert unknown == set()


def test_the_walk_over_node_classes_finds_them() -> None:
    """This verifies the test above: it finds the important classes."""
    assert {ast.Call, ast.MatchClass, ast.TryStar, ast.NamedExpr} <= concrete_nodes()


@pytest.mark.parametrize("base", [ast.expr, ast.stmt])
def test_unknown_syntax_is_refused(base: type[ast.AST]) -> None:
    """Unreadable code is refused."""
    future = type("Future", (base,), {"_fields": ()})()
    body = future if isinstance(future, ast.stmt) else ast.Expr(future)
    with pytest.raises(UnreadableSyntaxError, match="Future"):
        Reading(ast.Module([body], []), WatchedNames(), Memory())


def test_unknown_patterns_are_refused() -> None:
    """Patterns are read separately, and refused in the same way."""
    future = type("FuturePattern", (ast.pattern,), {"_fields": ()})()
    match = ast.Match(ast.Name("x", ast.Load()), [ast.match_case(future, None, [ast.Pass()])])
    with pytest.raises(UnreadableSyntaxError, match="FuturePattern"):
        Reading(ast.Module([match], []), WatchedNames(), Memory())
