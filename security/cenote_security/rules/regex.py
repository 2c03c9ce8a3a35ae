"""A rule about the text of the code."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from cenote_security.errors import UsageError
from cenote_security.rules.rule import Context, SecurityRule
from cenote_security.rules.violation import SecurityViolation

MOST_MATCHES = 20
"""Matches of one pattern that are reported in one cell."""

Region = tuple[int, int]


class RegexRule(SecurityRule):
    """Forbids code that a regular expression matches, comments apart.

    Searched with MULTILINE and DOTALL in the source as written and, where that gives nothing, in each statement as
    Python would format it, so that spacing and the kind of quotes make no difference. The pattern is yours, and so
    is its cost: one that backtracks badly holds up the caller, for it is run without a limit on time.
    Raises UsageError (a ValueError) for a pattern that does not compile.
    """

    nodes = (ast.Module,)

    def __init__(self, pattern: str, description: str | None = None, *, remedy: str | None = None) -> None:
        if not isinstance(pattern, str):
            raise UsageError(f"a pattern is a string, not {type(pattern).__name__}")
        self.description = description or f"matches the pattern {pattern}"
        self.remedy = remedy or ""
        try:
            self.pattern = re.compile(pattern, re.MULTILINE | re.DOTALL)
        except re.error as error:
            raise UsageError(f"not a regular expression: {pattern!r}: {error}") from error

    def __repr__(self) -> str:
        return f"{self.name}({self.pattern.pattern!r})"

    def check(self, node: ast.AST) -> list[SecurityViolation]:
        """Search one statement as Python would format it."""
        return [self._found(line=node.lineno)] if isinstance(node, ast.stmt) and self._formatted(node) else []

    def visit(self, node: ast.AST, context: Context) -> list[SecurityViolation]:
        found = list(self._in_source(context.code))
        if found or not isinstance(node, ast.Module):
            return found
        return [self._of_statement(context.code, part) for part in node.body if self._formatted(part)]

    def _in_source(self, code: str) -> Iterator[SecurityViolation]:
        comments: list[Region] | None = None
        for count, match in enumerate(self.pattern.finditer(code)):
            if count >= MOST_MATCHES:
                return
            if comments is None:
                comments = list(_comments(code))
            if not any(start <= match.start() and match.end() <= end for start, end in comments):
                yield self._at(code, match.start(), match.end())

    def _formatted(self, node: ast.stmt) -> bool:
        try:
            return self.pattern.search(ast.unparse(node)) is not None
        except RecursionError:
            return False

    def _of_statement(self, code: str, node: ast.stmt) -> SecurityViolation:
        text = code.split("\n")[node.lineno - 1]
        return self._found(line=node.lineno, end_line=node.lineno, end_column=len(text.rstrip()))

    def _at(self, code: str, start: int, end: int) -> SecurityViolation:
        line, column = _position(code, start)
        end_line, end_column = _position(code, end)
        return self._found(line=line, column=column, end_line=end_line, end_column=end_column)

    def _found(
        self, *, line: int, column: int = 0, end_line: int = 0, end_column: int = 0
    ) -> SecurityViolation:
        return SecurityViolation(
            self.description,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
        )


def _position(code: str, offset: int) -> tuple[int, int]:
    before = code[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1)


def _comments(code: str) -> Iterable[Region]:
    starts = [0]
    for line in code.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                start = starts[token.start[0] - 1] + token.start[1]
                yield start, start + len(token.string)
    except (tokenize.TokenError, SyntaxError):
        return
