"""Errors of jobs, typed by what the caller may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cenote_security.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """What is wrong with one task of the input. line: from 1."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class BadTasksError(UsageError):
    """Tasks that cannot be run as they stand; nothing was. lines: the first of them. found: how many there are."""

    def __init__(self, lines: Sequence[BadLine], found: int) -> None:
        super().__init__(tuple(lines), found)
        self.lines = tuple(lines)
        self.found = found

    def __str__(self) -> str:
        left = self.found - len(self.lines)
        listed = "\n".join(f"  {line}" for line in self.lines)
        more = f"\n  and {left} more" if left else ""
        return f"{self.found} of the tasks cannot be run, and none was:\n{listed}{more}"
