"""What a rule found, placed in the code, and the error that carries it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from cenote_security.errors import RejectedError

MOST_SHOWN = 5
"""Violations that the text of an error lists. A model needs the first few; the rest is usually the same mistake."""


@dataclass(frozen=True, slots=True)
class SecurityViolation:
    """One thing that the rules do not allow.

    message: one line for a model: where, what, why, and what to do instead. A rule of one's own makes a violation of
        its reason alone, `SecurityViolation("no printing here")`; the checker places it and completes the line.
    rule: name of the rule. reason: why, without the place. remedy: what to do instead, "" when there is no advice.
    line, column, end_line, end_column: lines count from 1, columns (in characters) from 0, the end is exclusive;
        line 0 says that the place is not known. snippet: the code there, on one line, bounded.
    """

    message: str
    _: KW_ONLY
    rule: str = ""
    reason: str = ""
    remedy: str = ""
    snippet: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return self.message


class SecurityError(RejectedError):
    """The rules refused a cell. Nothing of it ran. `violations` says why; `str()` is what a model reads."""

    def __init__(self, violations: Iterable[SecurityViolation] | str) -> None:
        given = [SecurityViolation(violations)] if isinstance(violations, str) else violations
        self.violations = tuple(given)
        super().__init__(self.violations)

    @property
    def message(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [violation.message for violation in self.violations[:MOST_SHOWN]]
        more = len(self.violations) - len(lines)
        if more > 0:
            lines.append(f"... and {more} more")
        return "\n".join(lines)
