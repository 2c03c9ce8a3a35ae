"""Reads code that stands in a string: what `exec`, `eval`, `timeit` and `DataFrame.query` are given."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections import deque

from cenote_security.rules.reading.reader import Reader
from cenote_security.rules.reading.scope import BUILTINS, Lookup, Scope
from cenote_security.rules.reading.value import Value

LONGEST_NESTED = 20_000
"""Characters of code in a string that are read."""

DEEPEST_NESTING = 3
"""Strings within strings that are read."""

_AT_NAME = re.compile(r"@\s*([A-Za-z_]\w*)")
_BACKTICKS = re.compile(r"`[^`]*`")
_MARK = "at_sign_"

_PARSING = threading.Lock()
"""Silencing warnings changes the whole process: two threads at it at once could leave them silenced for good."""


def parse(code: str) -> ast.Module | None:
    """The syntax tree, None for what Python cannot parse. Warnings about the code are left to its execution.

    Raises RecursionError or MemoryError for code that is nested too deeply: how deep depends on the caller's stack,
    so that the same code may well compile elsewhere.
    """
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def run_source(reader: Reader, node: ast.AST, text: str) -> Value:
    """Read the code in a string as if it stood here; the value of a lone expression."""
    tree = _nested(reader, text.strip())
    if tree is None:
        return None
    outer, reader.anchor = reader.anchor, reader.anchor or node
    pending, reader.pending = reader.pending, deque()
    closure = reader.closure
    reader.nesting += 1
    value: Value = None
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        value = reader.visit(tree.body[0].value)
    else:
        reader.branch(tree.body)
    reader.finish()  # its functions are read while the string still stands for what is found in them
    reader.pending, reader.closure = pending, closure
    reader.nesting -= 1
    reader.anchor = outer
    return value


def read_query(reader: Reader, node: ast.AST, text: str) -> None:
    """Read a pandas expression: bare names are columns, those with an at sign are the cell's."""
    marked = _AT_NAME.sub(rf"{_MARK}\1", _BACKTICKS.sub("column", text)).strip()
    tree = _nested(reader, marked) if any(sign in text for sign in (".", "@", "__")) else None
    if tree is None:
        return
    names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    outer = reader.scoped(Scope("comprehension", reader.scope))
    anchor, reader.anchor = reader.anchor, reader.anchor or node
    for name in names:
        reader.scope.names[name] = _in_query(reader, name)
    reader.branch(tree.body)
    reader.anchor = anchor
    reader.scoped(outer)


def read_formula(reader: Reader, node: ast.AST, text: str) -> None:
    """Read a formula of patsy's: bare names are columns, unless they are called or the cell has bound them."""
    tree = _nested(reader, text.replace("~", ",").strip())
    if tree is None:
        return
    called = {part.func for part in ast.walk(tree) if isinstance(part, ast.Call)}
    outer = reader.scoped(Scope("comprehension", reader.scope))
    anchor, reader.anchor = reader.anchor, reader.anchor or node
    for part in ast.walk(tree):
        if isinstance(part, ast.Name) and part not in called and reader.lookup(part.id) is Lookup.UNBOUND:
            reader.scope.names[part.id] = None
    reader.branch(tree.body)
    reader.anchor = anchor
    reader.scoped(outer)


def _in_query(reader: Reader, name: str) -> Value:
    if not name.startswith((_MARK, "__")):
        return None
    meant = name.removeprefix(_MARK)
    found = reader.lookup(meant)
    return BUILTINS.get(meant) if found is Lookup.UNBOUND else found


def _nested(reader: Reader, text: str) -> ast.Module | None:
    if len(text) > LONGEST_NESTED or reader.nesting >= DEEPEST_NESTING:
        return None
    return parse(text)
