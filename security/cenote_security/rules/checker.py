"""Checks cells against rules, alone or one after the other. The wall is the kernel, not these.

All rules share one reading of a cell, and one walk over its nodes for rules of users' own. What they find becomes a
violation with its place, a snippet, and the one line that a model reads.
"""

from __future__ import annotations

import ast
import copy
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote_security.errors import UsageError
from cenote_security.rules.builtin_rules import raw_magics
from cenote_security.rules.findings import SecurityViolation, Use, WatchedNames
from cenote_security.rules.reading.abstract_values import Memory
from cenote_security.rules.reading.reader import CodeReader, RecordingReader
from cenote_security.rules.reading.reflection import parse
from cenote_security.rules.reading.syntax import Reading, UnreadableSyntaxError
from cenote_security.rules.rule import Findings, SecurityRule, UseRule

if TYPE_CHECKING:
    from cenote_security.rules.source_range import Locator, SourceRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found, before it is placed. given: a place that the rule itself gave."""

    rule: str
    node: ast.AST
    reason: str
    remedy: str = ""
    token: str = ""
    given: SecurityViolation | None = None


def placed(findings: Iterable[Finding], code: str, tree: ast.Module) -> list[SecurityViolation]:
    """The violations in the order of the code."""
    from cenote_security.rules.source_range import (
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


def _place(finding: Finding, locator: Locator) -> SourceRange:
    given = finding.given
    if given is not None and given.end_line:
        from cenote_security.rules.source_range import SourceRange

        return SourceRange(
            line=given.line, column=given.column, end_line=given.end_line, end_column=given.end_column
        )
    return locator.place(finding.node, finding.token)


def _line(place: SourceRange, snippet: str, finding: Finding) -> str:
    quoted = f": `{snippet}` is blocked" if snippet else ""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return " ".join(f"{place}{quoted}: {finding.reason}{remedy}".split())


def overrides(rule: SecurityRule) -> bool:
    """Whether the rule wants to see nodes: it has a `visit`, or a `check`, of its own."""
    kind = type(rule)
    return kind.visit is not SecurityRule.visit or kind.check not in (SecurityRule.check, UseRule.check)


class NodeChecks:
    """One walk over the nodes of a cell, for all rules that want to see them."""

    def __init__(self, rules: Sequence[SecurityRule], code: str, recorder: RecordingReader) -> None:
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
        except Exception as error:  # noqa: BLE001  (a rule may be a user's code)
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


class RuleSet:
    """What all of the rules watch for, worked out once for many cells.

    rules: as given. watch: the union of what they watch for. own: the rules that want to see syntax nodes.
    """

    def __init__(self, rules: Iterable[SecurityRule]) -> None:
        self.rules = tuple(rules)
        self._judges = tuple(rule for rule in self.rules if isinstance(rule, UseRule))
        self.watch = WatchedNames.union(rule.watch for rule in self._judges)
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


LONGEST = 1_000_000
"""Characters of code that is read. Models write it, and it is read outside the jail: a list of small numbers takes
five hundred times its size, and two microseconds for each character."""

TOO_DEEP = "the code is nested too deeply to be checked; split the expression"
TOO_LONG = (
    "the code is too long to be checked, with more than 1,000,000 characters; put data into files, or have them "
    "injected, and read them in the code"
)
UNKNOWN_SYNTAX = "the code has syntax that the rules cannot read"


class CheckSession:
    """Remembers, between cells, what names mean: `o = os` in one, `o.system(...)` in the next.

    What a cell binds is taken as possible, for the cell may fail half-way, and as certain once `succeeded` says so.
    A cell with violations is taken not to run. Threads may share a session. Made by `SecurityChecker.session`.
    """

    def __init__(self, rule_set: Callable[[], RuleSet]) -> None:
        self._rule_set = rule_set
        self._lock = threading.Lock()
        self._memory = Memory()
        self._last: Reading | None = None

    def check_code(self, code: str) -> list[SecurityViolation]:
        """What the rules do not allow in the next cell, in the order of the code. Raises UsageError for no code."""
        if not isinstance(code, str):
            raise UsageError(f"code is a text, not {type(code).__name__}")
        with self._lock:
            self._remember(succeeded=False)
            return self._check(code.replace("\r\n", "\n").replace("\r", "\n"))

    def succeeded(self) -> None:
        """The cell that was checked last ran to its end."""
        with self._lock:
            self._remember(succeeded=True)

    def define(self, *names: str) -> None:
        """These names were injected: they hide builtins of the same name."""
        with self._lock:
            self._remember(succeeded=False)
            self._memory.define(names)

    def forget(self) -> None:
        """The namespace was reset."""
        with self._lock:
            self._memory, self._last = Memory(), None

    def branch(self) -> CheckSession:
        """A session for a copy of the namespace: what names mean here, they mean there."""
        branch = CheckSession(self._rule_set)
        with self._lock:
            branch._memory, branch._last = copy.deepcopy(self._memory), self._last
        return branch

    def _remember(self, *, succeeded: bool) -> None:
        if self._last is not None:
            after, self._last = self._last.memory(), None
            self._memory = after if succeeded else self._memory.doubtful(after)

    def _check(self, code: str) -> list[SecurityViolation]:
        rules = self._rule_set()
        if not rules.rules:
            return []
        if len(code) > LONGEST:
            return [SecurityViolation(TOO_LONG, rule="SecurityChecker", reason=TOO_LONG)]
        try:
            tree = parse(code)
            if tree is None:
                return placed(rules.judged(raw_magics(code)), code, ast.Module([], []))
            reading = Reading(tree, rules.watch, self._memory, RecordingReader if rules.own else CodeReader)
        except (RecursionError, MemoryError):
            return [SecurityViolation(TOO_DEEP, rule="SecurityChecker", reason=TOO_DEEP)]
        except UnreadableSyntaxError:
            return [SecurityViolation(UNKNOWN_SYNTAX, rule="SecurityChecker", reason=UNKNOWN_SYNTAX)]
        findings = list(rules.judged(reading.uses))
        if isinstance(reading.reader, RecordingReader):
            findings.extend(NodeChecks(rules.own, code, reading.reader).findings(tree))
        if findings:
            return placed(findings, code, tree)
        self._last = reading
        return []


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
        """The rules as they are now; `rules` is a list that callers may change."""
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
