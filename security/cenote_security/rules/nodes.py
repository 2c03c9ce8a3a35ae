"""Shows syntax nodes to rules of users' own."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence

from cenote_security.rules.reading.recorder import Recorder
from cenote_security.rules.report import Finding
from cenote_security.rules.rule import Findings, SecurityRule, UseRule
from cenote_security.rules.violation import SecurityViolation


def overrides(rule: SecurityRule) -> bool:
    """Whether the rule wants to see nodes: it has a `visit`, or a `check`, of its own."""
    kind = type(rule)
    return kind.visit is not SecurityRule.visit or kind.check not in (SecurityRule.check, UseRule.check)


class NodeChecks:
    """One walk over the nodes of a cell, for all rules that want to see them."""

    def __init__(self, rules: Sequence[SecurityRule], code: str, recorder: Recorder) -> None:
        self._rules = rules
        self._recorder = recorder
        self.code = code
        self._failed: set[int] = set()

    def name_of(self, node: ast.AST) -> str | None:
        return self._recorder.name_of(node)

    def constant_of(self, node: ast.AST) -> object:
        return self._recorder.constant_of(node)

    def findings(self, tree: ast.Module) -> Iterator[Finding]:
        """What the rules say of the nodes."""
        whole = all(rule.nodes == (ast.Module,) for rule in self._rules)
        for node in (tree,) if whole else ast.walk(tree):
            for rule in self._rules:
                if isinstance(node, rule.nodes):
                    yield from self._ask(rule, node)

    def _ask(self, rule: SecurityRule, node: ast.AST) -> Iterator[Finding]:
        try:
            answers = list(_answers(rule.visit(node, self)))
        except Exception as error:  # noqa: BLE001  (a rule is anybody's code)
            self._warn(rule, node, error)
            return
        for answer in answers:
            remedy = answer.remedy or rule.remedy
            yield Finding(rule=rule.name, node=node, reason=answer.message, remedy=remedy, given=answer)

    def _warn(self, rule: SecurityRule, node: ast.AST, error: Exception) -> None:
        if id(rule) not in self._failed:
            self._failed.add(id(rule))
            where = f"{type(node).__name__} in line {getattr(node, 'lineno', '?')}"
            warnings.warn(
                f"the rule {rule.name} raised {error!r} for {where} and was skipped there",
                RuntimeWarning,
                stacklevel=2,
            )


def _answers(findings: Findings) -> Iterable[SecurityViolation]:
    if findings is None:
        return ()
    if isinstance(findings, str):
        return (SecurityViolation(findings),)
    if isinstance(findings, SecurityViolation):
        return (findings,)
    return [SecurityViolation(found) if isinstance(found, str) else found for found in findings]
