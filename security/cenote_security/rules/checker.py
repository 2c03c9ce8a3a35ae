"""Checks cells against rules. Rules give a model early, readable feedback; the wall is the kernel, not these."""

from __future__ import annotations

from collections.abc import Iterable

from cenote_security.errors import UsageError
from cenote_security.rules.rule import SecurityRule
from cenote_security.rules.rule_set import RuleSet
from cenote_security.rules.session import CheckSession
from cenote_security.rules.violation import SecurityViolation


class SecurityChecker:
    """A list of rules. It keeps nothing of the code it checks; `session` makes something that does."""

    def __init__(self, rules: Iterable[SecurityRule] = ()) -> None:
        if not isinstance(rules, Iterable):
            raise UsageError(f"a checker takes a list of rules, not {rules!r:.100}")
        self.rules = list(rules)
        for rule in self.rules:
            if not isinstance(rule, SecurityRule):
                raise UsageError(
                    f"rules are SecurityRule objects, such as ImportRule([...]), not {rule!r:.100}"
                )
        self._set = RuleSet(self.rules)

    def add_rule(self, rule: SecurityRule) -> None:
        """Check against this rule too, from now on, in sessions that are open as well."""
        self.rules.append(rule)

    def rule_set(self) -> RuleSet:
        """The rules as they are now; `rules` is a list that anybody may change."""
        if self._set.rules != tuple(self.rules):
            self._set = RuleSet(self.rules)
        return self._set

    def check_code(self, code: str) -> list[SecurityViolation]:
        """What the rules do not allow in a cell that stands alone, in the order of the code.

        Code that Python cannot parse violates no rule: running it reports what is wrong with it. The exception is
        IPython's syntax: `!ls` and `%cd` are seen in a cell as it was written, too. Raises UsageError for what is no
        text.
        """
        return self.session().check_code(code)

    def session(self) -> CheckSession:
        """A checker for the cells of one namespace: it remembers aliases from one cell to the next."""
        return CheckSession(self.rule_set)
