"""The base of all rules, and the base of those that judge what a reading reports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from cenote_security.rules.findings import SecurityViolation, Use, WatchedNames
from cenote_security.rules.reading.abstract_values import Memory
from cenote_security.rules.reading.reader import CodeReader
from cenote_security.rules.reading.syntax import HANDLERS

Findings = str | SecurityViolation | Iterable[SecurityViolation] | None
"""What a rule may answer: nothing, a reason, or violations."""


class Context(Protocol):
    """What a rule may ask about the cell that its nodes are from."""

    @property
    def code(self) -> str:
        """The source of the cell."""

    def name_of(self, node: ast.AST) -> str | None:
        """The dotted name of what the expression means, aliases resolved: `os.path.join`, `builtins.eval`."""

    def constant_of(self, node: ast.AST) -> object:
        """The string, number or list that the expression spells, computed where it can be; None when it can't."""


class SecurityRule:
    """A rule of one's own: override `check`, or `visit` to see names resolved.

        class NoPrinting(SecurityRule):
            remedy = "use reply(...)"
            nodes = (ast.Call,)

            def visit(self, node, context):
                if context.name_of(node.func) == "builtins.print":
                    return "printing is off"

    nodes: the classes of syntax nodes that the rule wants to see; all by default. remedy: what to do instead.
    A rule that raises is skipped for that node, with a RuntimeWarning: rules advise, the kernel is the wall.
    """

    nodes: tuple[type[ast.AST], ...] = (ast.AST,)
    remedy: str = ""

    def check(self, node: ast.AST) -> Findings:  # noqa: ARG002
        """What is wrong with the node: nothing, a reason, or a list of violations."""
        return None

    def visit(self, node: ast.AST, context: Context) -> Findings:  # noqa: ARG002
        """As `check`, with the cell that the node is from."""
        return self.check(node)

    @property
    def name(self) -> str:
        return type(self).__name__


class UseRule(SecurityRule):
    """A rule that judges what the code uses, whatever it calls it.

    watch: the names that a reading must report to it. default_remedy: used when neither the rule nor the table
    of remedies has better advice.
    """

    default_remedy: ClassVar[str] = "use the functions and variables that you were given"

    def __init__(self, watch: WatchedNames, remedy: str | None = None) -> None:
        self.watch = watch
        self.remedy = remedy or ""

    def judge(self, use: Use) -> str | None:
        """Why the use is not allowed; None when it is, or is another rule's business."""
        raise NotImplementedError

    def advice(self, use: Use) -> str:  # noqa: ARG002
        """What to do instead."""
        return self.remedy or self.default_remedy

    def check(self, node: ast.AST) -> list[SecurityViolation]:
        """Judge one node by itself, without what the code around it says of its names."""
        if type(node) not in HANDLERS:
            return []
        reader = CodeReader(HANDLERS, self.watch, Memory())
        reader.visit(node)
        return list(self._violations(node, reader.uses))

    def _violations(self, node: ast.AST, uses: Iterable[Use]) -> Iterator[SecurityViolation]:
        for use in uses:
            reason = self.judge(use) if use.node is node else None
            if reason is not None:
                line = getattr(node, "lineno", 0)
                yield SecurityViolation(
                    reason, rule=self.name, reason=reason, remedy=self.advice(use), line=line
                )
