"""Errors of skills, and warnings."""

from __future__ import annotations

from cenote_security.errors import UsageError


class SkillError(UsageError):
    """A skill is not as it must be.

    problems: each with its file, and the line or the field where there is one.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class SkillWarning(UserWarning):
    """A skill was left out, or a field of it is not as it must be; its text names the file, the line and the fix."""
