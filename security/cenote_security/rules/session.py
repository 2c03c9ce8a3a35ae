"""Checks the cells of one namespace, one after the other."""

from __future__ import annotations

import ast
import copy
import threading
from collections.abc import Callable

from cenote_security.errors import UsageError
from cenote_security.rules.magics import raw_magics
from cenote_security.rules.nodes import NodeChecks
from cenote_security.rules.reading.memory import Memory
from cenote_security.rules.reading.reader import Reader
from cenote_security.rules.reading.recorder import Recorder
from cenote_security.rules.reading.source import parse
from cenote_security.rules.reading.syntax import Reading, UnreadableSyntaxError
from cenote_security.rules.report import placed
from cenote_security.rules.rule_set import RuleSet
from cenote_security.rules.violation import SecurityViolation

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
            reading = Reading(tree, rules.watch, self._memory, Recorder if rules.own else Reader)
        except (RecursionError, MemoryError):
            return [SecurityViolation(TOO_DEEP, rule="SecurityChecker", reason=TOO_DEEP)]
        except UnreadableSyntaxError:
            return [SecurityViolation(UNKNOWN_SYNTAX, rule="SecurityChecker", reason=UNKNOWN_SYNTAX)]
        findings = list(rules.judged(reading.uses))
        if isinstance(reading.reader, Recorder):
            findings.extend(NodeChecks(rules.own, code, reading.reader).findings(tree))
        if findings:
            return placed(findings, code, tree)
        self._last = reading
        return []
