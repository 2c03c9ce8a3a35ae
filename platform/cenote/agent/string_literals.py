"""Whether a line of Python source begins inside a string literal."""

from __future__ import annotations

import re

_OPENING = re.compile(r"""#|'''|\"{3}|'|\"""")
_CLOSING = {quote: re.compile(rf"\\.|{quote}") for quote in ("'''", '"""', "'", '"')}


class StringLiterals:
    """Follows source line by line. A tokenizer would be exact, but refuses source that is not finished yet.

    A literal in single quotes ends with its line, whatever its quotes say, unless a backslash goes on; so that
    a stray quote mistakes one line, not all that follow.
    """

    def __init__(self) -> None:
        self._quote = ""

    @property
    def inside(self) -> bool:
        """True when the next line begins inside a literal."""
        return bool(self._quote)

    def feed(self, line: str) -> None:
        """Follow one line, given without its line break."""
        position: int | None = 0
        while position is not None:
            position = self._leave(line, position) if self._quote else self._enter(line, position)

    def _enter(self, line: str, position: int) -> int | None:
        match = _OPENING.search(line, position)
        if match is None or match[0] == "#":
            return None
        self._quote = match[0]
        return match.end()

    def _leave(self, line: str, position: int) -> int | None:
        match = _CLOSING[self._quote].search(line, position)
        if match is not None:
            if match[0] == self._quote:
                self._quote = ""
            return match.end()
        goes_on = line.endswith("\\") and position < len(line)
        if len(self._quote) == 1 and not goes_on:
            self._quote = ""
        return None
