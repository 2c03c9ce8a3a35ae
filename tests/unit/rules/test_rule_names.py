"""Valid arguments of rules, and their reprs."""

from __future__ import annotations

import pytest

from cenote_security.errors import UsageError
from cenote_security.rules import (
    AttributeRule,
    FunctionRule,
    ImportRule,
    RegexRule,
    SecurityChecker,
    SecurityRule,
)


@pytest.mark.parametrize("rule", [ImportRule, FunctionRule, AttributeRule])
@pytest.mark.parametrize("given", [None, 5, [None], ["os", 5], [b"os"]], ids=str)
def test_what_is_no_name_is_refused(rule: type[SecurityRule], given: object) -> None:
    """Such a rule would pass everything without notice."""
    with pytest.raises(UsageError, match="a rule takes names, such as"):
        rule(given)


def test_other_wrong_arguments() -> None:
    """A pattern is a string, a checker takes a list."""
    with pytest.raises(UsageError, match="a pattern is a string, not NoneType"):
        RegexRule(None)
    with pytest.raises(UsageError, match="a checker takes a list of rules, not None"):
        SecurityChecker(None)


def test_a_rule_shows_what_it_was_made_of() -> None:
    """A list of rules shows which they are."""
    rules = [ImportRule({"sys", "os"}), FunctionRule("eval"), AttributeRule(["secret"]), RegexRule(r"\d+")]
    assert [
        "ImportRule(['os', 'sys'])",
        "FunctionRule(['eval'])",
        "AttributeRule(['secret'])",
        r"RegexRule('\\d+')",
    ] == list(map(repr, rules))
