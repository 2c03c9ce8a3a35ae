"""Rules by users: the seed's signature, resolved names, and failures that are reported and do no harm."""

from __future__ import annotations

import ast

import pytest

from cenote.security import (
    AttributeRule,
    Context,
    FunctionRule,
    ImportRule,
    RegexRule,
    SecurityChecker,
    SecurityRule,
    SecurityViolation,
)


class NoPrinting(SecurityRule):
    """As written for other checkers: one node in, a list of violations out."""

    def check(self, node: ast.AST) -> list[SecurityViolation]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            return [SecurityViolation(message="no printing here")]
        return []


class NoSelling(SecurityRule):
    """Uses resolved names."""

    nodes = (ast.Call,)
    remedy = "ask the user first"

    def visit(self, node: ast.AST, context: Context) -> str | None:
        assert isinstance(node, ast.Call)
        if context.name_of(node.func) == "shop.sell" and context.constant_of(node.args[0]) == "house":
            return "the house is not for sale"
        return None


class Careless(SecurityRule):
    """Raises for most nodes."""

    def check(self, node: ast.AST) -> str | None:
        return "no foo" if node.func.id == "foo" else None  # type: ignore[attr-defined]


def test_a_rule_with_the_plain_signature() -> None:
    """`check(node)` returns violations; the checker adds their places."""
    (violation,) = SecurityChecker([NoPrinting()]).check_code("x = 1\nprint(x)")
    assert violation.message == "line 2, columns 0-8: `print(x)` is blocked: no printing here"
    assert (violation.rule, violation.reason, violation.line) == ("NoPrinting", "no printing here", 2)


def test_a_rule_that_sees_names_resolved() -> None:
    """Aliases and computed strings do not hide code from user rules either."""
    code = "from shop import sell as s\nf = s\nf('hou' + 'se')\nf('chair')"
    (violation,) = SecurityChecker([NoSelling()]).check_code(code)
    assert (
        violation.message
        == "line 3, columns 0-15: `f('hou' + 'se')` is blocked: the house is not for sale; ask the user first"
    )


def test_a_rule_that_raises_is_skipped_and_told() -> None:
    """One warning names the rule; its violations still count."""
    with pytest.warns(RuntimeWarning, match="the rule Careless raised AttributeError") as warned:
        violations = SecurityChecker([Careless()]).check_code("df.head()\nfoo()")
    assert [violation.reason for violation in violations] == ["no foo"]
    assert len(warned) == 1


def test_a_rule_may_use_another() -> None:
    """`check` of the built-in rules judges one node by itself."""

    class Both(SecurityRule):
        inner = (
            ImportRule({"os"}),
            FunctionRule({"eval"}),
            AttributeRule({"__globals__"}),
            RegexRule("secret"),
        )

        def check(self, node: ast.AST) -> list[SecurityViolation]:
            return [violation for rule in self.inner for violation in rule.check(node)]

    violations = SecurityChecker([Both()]).check_code("import os\neval('1')\nf.__globals__\nx = 'secret'")
    assert [violation.line for violation in violations] == [1, 2, 3, 4]


def test_a_script_of_the_seed_runs_unchanged() -> None:
    """Rules by position, sets or lists, unchanged keyword names, rules added later."""
    checker = SecurityChecker(
        [
            ImportRule({"os", "subprocess", "sys"}),
            FunctionRule(forbidden_functions=["eval", "exec", "open"], description="dangerous"),
            AttributeRule(forbidden_attributes={"__globals__", "__builtins__"}),
        ]
    )
    checker.add_rule(RegexRule(r"delete", "no deleting"))
    checker.rules.append(NoPrinting())
    code = "import os\nopen('x')\nf.__globals__\ndelete(x)\nprint(1)"
    assert [violation.line for violation in checker.check_code(code)] == [1, 2, 3, 4, 5]
