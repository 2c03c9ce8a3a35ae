"""Violations name the exact place, quote it, give the reason and the alternative, on one line."""

from __future__ import annotations

import sys

import pytest

from cenote_security.rules import (
    AttributeRule,
    FunctionRule,
    ImportRule,
    SecurityChecker,
    SecurityError,
    SecurityViolation,
)

CHECKER = SecurityChecker([ImportRule({"os"}), FunctionRule({"eval"}), AttributeRule({"__globals__"})])


def spans(code: str) -> list[tuple[int, int, int, int]]:
    return [(v.line, v.column, v.end_line, v.end_column) for v in CHECKER.check_code(code)]


def test_the_line_that_a_model_reads() -> None:
    """The place, the code, the reason, the alternative."""
    checker = SecurityChecker([ImportRule({"os"}, remedy="use the injected functions instead")])
    (violation,) = checker.check_code("x = 1\n\nimport os")
    assert violation.message == (
        "line 3, columns 0-9: `import os` is blocked: module os is not allowed here; "
        "use the injected functions instead"
    )
    assert str(violation) == violation.message
    assert (violation.rule, violation.snippet) == ("ImportRule", "import os")


@pytest.mark.parametrize(
    ("code", "span"),
    [
        ("import json, os, re", (1, 13, 1, 15)),
        ("import json, os as o", (1, 13, 1, 20)),
        ("é = 'ü'; x.__globals__", (1, 9, 1, 22)),
        ("\N{MATHEMATICAL BOLD SMALL X} = '\N{MATHEMATICAL BOLD SMALL X}'; x.__globals__", (1, 9, 1, 22)),
        ("x = (df\n  .head()\n  .__globals__)", (3, 3, 3, 14)),
        ("match x:\n  case C(a=1, __globals__=g):\n    pass", (2, 14, 2, 25)),
        ("match x:\n  case C(__globals__=C(__globals__=2)):\n    pass", (2, 9, 2, 20)),
        ("match x:\n  case C(a=C(b=1), __globals__=(2)):\n    pass", (2, 19, 2, 30)),
        ("@eval\ndef f(): pass", (1, 1, 1, 5)),
        ("if x:\r\n    eval(1)", (2, 4, 2, 8)),
        ("x = 'a\x0cb'; eval(1)", (1, 11, 1, 15)),
        ("getattr(f,\n  '__globals__')", (1, 0, 2, 16)),
    ],
)
def test_spans_are_exact(code: str, span: tuple[int, int, int, int]) -> None:
    """Columns count characters, whatever their width in bytes."""
    assert spans(code)[0] == span


def test_inside_an_fstring() -> None:
    """Exact since 3.12; earlier Pythons do not know the place, and the whole f-string is shown."""
    expected = (1, 7, 1, 11) if sys.version_info >= (3, 12) else (1, 0, 1, 16)
    assert spans("f'{1} {eval(1)}'") == [expected]


def test_code_in_a_string_is_placed_at_the_call() -> None:
    """A model cannot see columns inside the string; it wrote the call."""
    assert spans("x = exec('\\n\\nimport os')") == [(1, 4, 1, 25)]


def test_violations_come_in_the_order_of_the_code() -> None:
    """Although function bodies are read last."""
    assert [span[0] for span in spans("def f():\n    eval(1)\neval(2)\nimport os")] == [2, 3, 4]


def test_snippets_are_bounded_and_on_one_line() -> None:
    """Long code is shortened in the middle; control characters are removed."""
    (violation,) = CHECKER.check_code("getattr(f, '__globals__', [" + "1,\n" * 500 + "'\x1b'])")
    assert len(violation.message) < 300
    assert "\n" not in violation.message
    assert "\x1b" not in violation.message


def test_the_error_lists_the_first_few() -> None:
    """Five lines, and the number of the others."""
    error = SecurityError(CHECKER.check_code("eval(1)\n" * 9))
    lines = str(error).splitlines()
    assert len(error.violations) == 9
    assert lines[0].startswith("line 1, columns 0-4: `eval` is blocked")
    assert lines[5:] == ["... and 4 more"]


def test_the_error_takes_text_too() -> None:
    """As callers of other libraries raise it."""
    assert SecurityError("no").violations == (SecurityViolation("no"),)
    assert SecurityError("no").message == "no"
