"""Rules that are applied together, in one reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cenote_security.rules.nodes import overrides
from cenote_security.rules.report import Finding
from cenote_security.rules.rule import SecurityRule, UseRule
from cenote_security.rules.use import Use, Watch


class RuleSet:
    """What all of the rules watch for, worked out once for many cells.

    rules: as given. watch: the union of what they watch for. own: the rules that want to see syntax nodes.
    """

    def __init__(self, rules: Iterable[SecurityRule]) -> None:
        self.rules = tuple(rules)
        self._judges = tuple(rule for rule in self.rules if isinstance(rule, UseRule))
        self.watch = Watch.union(rule.watch for rule in self._judges)
        self.own = tuple(rule for rule in self.rules if overrides(rule))

    def judged(self, uses: Iterable[Use]) -> Iterator[Finding]:
        """What the rules say of the uses."""
        for use in uses:
            for rule in self._judges:
                reason = rule.judge(use)
                if reason is not None:
                    advice = rule.advice(use)
                    yield Finding(
                        rule=rule.name, node=use.node, token=use.token, reason=reason, remedy=advice
                    )
