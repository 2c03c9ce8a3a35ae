"""RegexRule: the text of the code, without comments."""

from __future__ import annotations

import pytest

from cenote_security.errors import UsageError
from cenote_security.rules import RegexRule, SecurityChecker


def found(code: str, pattern: str, description: str | None = None) -> list[tuple[int, int, int, int, str]]:
    violations = SecurityChecker([RegexRule(pattern, description)]).check_code(code)
    return [(v.line, v.column, v.end_line, v.end_column, v.reason) for v in violations]


def test_a_match_is_placed_exactly() -> None:
    """The span is the match, in characters."""
    assert found("é = 1\nx = drop_table(é)", r"drop_\w+", "no dropping") == [(2, 4, 2, 14, "no dropping")]


def test_comments_do_not_match() -> None:
    """A comment about deleting deletes nothing; a string may."""
    assert found("# delete\nx = 1  # delete", "delete") == []
    assert found("x = 'delete'  # delete", "delete")[0][:4] == (1, 5, 1, 11)


def test_spacing_and_quotes_make_no_difference() -> None:
    """If the source does not match, the statement as formatted by Python is searched."""
    assert found('x = 1\nos . system(\n  "id")', r"os\.system\('id'\)") == [
        (2, 0, 2, 12, r"matches the pattern os\.system\('id'\)")
    ]


def test_many_matches_are_bounded() -> None:
    """Twenty are enough."""
    assert len(found("x\n" * 100, "x")) == 20


def test_a_wrong_pattern_is_a_usage_error() -> None:
    """The error occurs when the rule is made, and is a ValueError too."""
    with pytest.raises(UsageError, match="not a regular expression"):
        RegexRule("(")
    assert issubclass(UsageError, ValueError)
