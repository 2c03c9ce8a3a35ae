"""The messages of the built-in sets of rules, and who reads them."""

from __future__ import annotations

import pytest

from cenote_security.rules import InstallRule, SecurityChecker, default_rules, strict_rules


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("import socket\nsocket.socket()", "there is no network here"),
        ("import smtplib", "there is no network here"),
        ("import subprocess\nsubprocess.run(['pip', 'install', 'x'])", "packages cannot be installed here"),
        ("import ctypes", "use numpy"),
        ("import os\nos.fork()", "concurrent.futures"),
        ("import sys\nsys.settrace(f)", "print what you want to see"),
        ("object.__subclasses__()", "use the public methods"),
    ],
)
def test_default_rules_advise(code: str, advice: str) -> None:
    """A better message than the kernel's, before anything runs."""
    (violation,) = SecurityChecker(default_rules()).check_code(code)
    assert advice in violation.message


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', '-q', 'x'])",
        "import os\nos.system('pip3 install --user x')",
        "from subprocess import run as r\ncommand = 'pip ' + 'install x'\nr(command, shell=True)",
        "import pip\npip.main(['install', 'x'])",
    ],
)
def test_installing_is_seen_in_any_dress(code: str) -> None:
    """The command line is read as far as it is literal."""
    expected = [] if code.startswith("import pip\n") else ["packages cannot be installed here"]
    found = [violation.reason for violation in SecurityChecker([InstallRule()]).check_code(code)]
    assert found == expected


def test_other_programs_are_nobody_s_business() -> None:
    """`ls` works in a jail."""
    assert (
        SecurityChecker([InstallRule()]).check_code("import subprocess\nsubprocess.run(['ls', 'install'])")
        == []
    )


def test_strict_contains_default() -> None:
    """Strict contains all default rules."""
    names = [rule.name for rule in strict_rules()]
    assert names[: len(default_rules())] == [rule.name for rule in default_rules()]


def test_packages_may_be_installed_where_an_index_is_reached() -> None:
    """Only that rule is left out."""
    code = "import subprocess\nsubprocess.run(['pip', 'install', 'x'])"
    assert [] == SecurityChecker(default_rules(installs=True)).check_code(code)
    assert len(default_rules()) - 1 == len(default_rules(installs=True))
