"""`cenote.security` is a list of names; this test holds it."""

from __future__ import annotations

import subprocess
import sys

import cenote.security
import cenote_security.rules

EXPECTED = [
    "Allow",
    "AllowedImportsRule",
    "AttributeRule",
    "CheckSession",
    "Context",
    "default_rules",
    "DynamicAttributeRule",
    "FunctionRule",
    "HiddenAttributeRule",
    "ImportRule",
    "InstallRule",
    "MagicRule",
    "Mount",
    "printable",
    "RegexRule",
    "SandboxPolicy",
    "Secret",
    "SecurityChecker",
    "SecurityError",
    "SecurityRule",
    "SecurityViolation",
    "strict_rules",
]


def test_the_names_are_these() -> None:
    """Adding a name is a decision; removing one breaks users."""
    assert EXPECTED == cenote.security.__all__
    assert sorted(EXPECTED, key=str.lower) == EXPECTED
    assert all(hasattr(cenote.security, name) for name in EXPECTED)


def test_they_are_the_classes_of_the_rules() -> None:
    """One class under two paths, not two classes."""
    assert cenote.security.SecurityRule is cenote_security.rules.SecurityRule


def test_asttokens_is_loaded_only_for_a_violation() -> None:
    """Checking clean code does not load it."""
    code = (
        "import sys; from cenote_security.rules import *\n"
        "checker = SecurityChecker(strict_rules())\n"
        "assert checker.check_code('x = 1') == [] and 'asttokens' not in sys.modules\n"
        "assert checker.check_code('eval(1)') and 'asttokens' in sys.modules\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr == ""
    )
