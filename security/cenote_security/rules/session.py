"""Checks the cells of one namespace, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from cenote_security.rules.nodes import NodeChecks, overrides
from cenote_security.rules.reading.memory import Memory
from cenote_security.rules.reading.reader import Reader
from cenote_security.rules.reading.recorder import Recorder
from cenote_security.rules.reading.source import parse
from cenote_security.rules.reading.syntax import Reading, UnreadableSyntaxError
from cenote_security.rules.report import Finding, placed
from cenote_security.rules.rule import SecurityRule, UseRule
from cenote_security.rules.use import Use, Watch
from cenote_security.rules.violation import SecurityViolation

TOO_DEEP = "the code is nested too deeply to be checked; split the expression"
UNKNOWN_SYNTAX = "the code has syntax that the rules cannot read"


class CheckSession:
    """Remembers, between cells, what names mean: `o = os` in one, `o.system(...)` in the next.

    What a cell binds counts as possible after `check_code`, because the cell may fail half-way, and as certain
    after `succeeded`. A cell with violations is taken not to run. Threads may share a session.
    """

    def __init__(self, rules: Sequence[SecurityRule]) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._memory = Memory()
        self._if_succeeded: Memory | None = None

    def check_code(self, code: str) -> list[SecurityViolation]:
        """What the rules do not allow in the next cell, in the order of the code. Never raises."""
        with self._lock:
            return self._check(code.replace("\r\n", "\n").replace("\r", "\n"))

    def succeeded(self) -> None:
        """The cell that was checked last ran to its end."""
        with self._lock:
            if self._if_succeeded is not None:
                self._memory, self._if_succeeded = self._if_succeeded, None

    def define(self, *names: str) -> None:
        """These names were injected: they hide builtins of the same name."""
        with self._lock:
            self._memory.define(names)

    def forget(self) -> None:
        """The namespace was reset."""
        with self._lock:
            self._memory, self._if_succeeded = Memory(), None

    def _check(self, code: str) -> list[SecurityViolation]:
        self._if_succeeded = None
        tree = parse(code) if self._rules else None
        if tree is None:
            return []
        rules = tuple(self._rules)
        watch = Watch.union(rule.watch for rule in rules if isinstance(rule, UseRule))
        own = [rule for rule in rules if overrides(rule)]
        try:
            reading = Reading(tree, watch, self._memory, Recorder if own else Reader)
        except (RecursionError, UnreadableSyntaxError) as error:
            reason = TOO_DEEP if isinstance(error, RecursionError) else UNKNOWN_SYNTAX
            return [SecurityViolation(reason, rule="SecurityChecker", reason=reason)]
        findings = list(_judged(rules, reading.uses))
        if own and isinstance(reading.reader, Recorder):
            findings.extend(NodeChecks(own, code, reading.reader).findings(tree))
        if findings:
            return placed(findings, code, tree)
        self._remember(reading)
        return []

    def _remember(self, reading: Reading) -> None:
        after = reading.memory()
        self._if_succeeded = after
        self._memory = self._memory.doubtful(after)


def _judged(rules: Iterable[SecurityRule], uses: Sequence[Use]) -> Iterable[Finding]:
    for use in uses:
        for rule in rules:
            if isinstance(rule, UseRule):
                reason = rule.judge(use)
                if reason is not None:
                    yield Finding(
                        rule=rule.name, node=use.node, token=use.token, reason=reason, remedy=rule.advice(use)
                    )
