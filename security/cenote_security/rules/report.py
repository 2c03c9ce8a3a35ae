"""Turns findings into violations: places, snippets and the one line that a model reads."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote_security.rules.violation import SecurityViolation

if TYPE_CHECKING:
    from cenote_security.rules.locate import Locator, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found, before it is placed. given: a place that the rule itself told."""

    rule: str
    node: ast.AST
    reason: str
    remedy: str = ""
    token: str = ""
    given: SecurityViolation | None = None


def placed(findings: Iterable[Finding], code: str, tree: ast.Module) -> list[SecurityViolation]:
    """The violations in the order of the code."""
    from cenote_security.rules.locate import (
        Locator,  # asttokens: a cell without violations does not pay for it
    )

    locator = Locator(code, tree)
    violations = [_violation(finding, locator) for finding in findings]
    unique = dict.fromkeys(violations)
    return sorted(unique, key=lambda violation: (violation.line, violation.column, violation.end_column))


def _violation(finding: Finding, locator: Locator) -> SecurityViolation:
    place = _place(finding, locator)
    snippet = locator.snippet(place)
    return SecurityViolation(
        _line(place, snippet, finding),
        rule=finding.rule,
        reason=finding.reason,
        remedy=finding.remedy,
        snippet=snippet,
        line=place.line,
        column=place.column,
        end_line=place.end_line,
        end_column=place.end_column,
    )


def _place(finding: Finding, locator: Locator) -> Place:
    given = finding.given
    if given is not None and given.end_line:
        from cenote_security.rules.locate import Place

        return Place(
            line=given.line, column=given.column, end_line=given.end_line, end_column=given.end_column
        )
    return locator.place(finding.node, finding.token)


def _line(place: Place, snippet: str, finding: Finding) -> str:
    quoted = f": `{snippet}` is blocked" if snippet else ""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return " ".join(f"{place}{quoted}: {finding.reason}{remedy}".split())
