"""Whether a text is Python that does something, and how it can be run. No I/O."""

from __future__ import annotations

import ast
import re
from textwrap import dedent
from typing import Final

MAX_READ: Final = 200_000
"""Characters of an answer that are looked into. A longer one is prose, or was cut off."""

_SHELL_LINE: Final = re.compile(r"^([ \t]*)[!%]{1,2}[A-Za-z].*$", re.MULTILINE)
_TYPED: Final = re.compile(r"(?:>>>|\.\.\.)(?: (?P<spaced>.*)|(?P<close>.*))")
_TYPED_IN_IPYTHON: Final = re.compile(r"(?:In \[\d{1,6}\]|\.{3,10}): ?(?P<spaced>.*)(?P<close>)")


def source_of(code: str) -> str:
    """Code as it can be run: of a session that was written down with its prompts, what was typed in; of a block that
    is indented as a whole, as in a list, without that indent."""
    lines = code.split("\n")
    first = next((line for line in lines if line.strip()), "")
    start = first.lstrip()
    prompt = _TYPED if start.startswith(">>>") else _TYPED_IN_IPYTHON
    if prompt is _TYPED_IN_IPYTHON and not (start.startswith("In [") and prompt.fullmatch(start)):
        return dedent(code) if first[:1].isspace() else code
    typed = [found for line in lines if (found := prompt.fullmatch(line.lstrip()))]
    return "\n".join(found["spaced"] or found["close"] or "" for found in typed)


def is_code(text: str) -> bool:
    """Whether a text is Python that does something: a name, a number or a comparison by itself does nothing.

    Prose that happens to parse is none of it: `Paris (France)`, `Answer: 42`.
    """
    plain = dedent(text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    plain = _SHELL_LINE.sub(r"\1_()", plain)
    if not plain.strip() or len(plain) > MAX_READ:
        return False
    try:
        body = ast.parse(plain).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # Split once: `ast.get_source_segment` does so each time, which takes n² steps for many statements.
    lines = plain.encode(errors="replace").split(b"\n")
    return any(_does_something(statement, lines) for statement in body)


def _does_something(statement: ast.stmt, lines: list[bytes]) -> bool:
    match statement:
        case ast.AnnAssign(value=value):
            return value is not None
        case ast.Expr(value=ast.Await(value=ast.Call(func=called))) | ast.Expr(value=ast.Call(func=called)):
            return _is_followed_by_a_bracket(called, lines)
        case ast.Expr() | ast.Pass():
            return any(isinstance(node, ast.NamedExpr) for node in ast.walk(statement))
    return True


def _is_followed_by_a_bracket(called: ast.expr, lines: list[bytes]) -> bool:
    """Code writes `f(1)`; words stand apart from their brackets."""
    line, column = called.end_lineno, called.end_col_offset
    return line is not None and column is not None and lines[line - 1][column : column + 1] == b"("
