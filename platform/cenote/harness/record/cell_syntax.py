"""The syntax of cells, as questions read it: in the process that holds the record, beside other work."""

from __future__ import annotations

import ast
from typing import Final

MAX_CODE: Final = 50_000
"""Characters of a cell that is read. Python parses while all other threads wait, half a second for so much, and
takes a thousand times its size. For a longer one only the trace shows what it does."""


class UnreadCode(Exception):
    """What may be Python, and is too long or nested too deeply to be looked at."""


def parse(code: str) -> ast.Module:
    """Raises SyntaxError and ValueError for what is no Python, UnreadCode."""
    if len(code) > MAX_CODE:
        raise UnreadCode("it is too long to be looked at")
    try:
        return ast.parse(code)
    except (RecursionError, MemoryError):  # the second where the parser's own limit comes first
        raise UnreadCode("it is nested too deeply to be looked at") from None


def parsed(code: str) -> ast.Module | None:
    """None where there is none to look at, for whatever reason."""
    try:
        return parse(code)
    except (SyntaxError, ValueError, UnreadCode):
        return None
