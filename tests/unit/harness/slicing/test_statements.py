"""Which statement wrote a name."""

from __future__ import annotations

import pytest

from cenote.harness.record.last_writer import last_writer
from cenote_worker.execution.results import Span


@pytest.mark.parametrize(
    ("code", "name", "statement"),
    [
        ("x = 1\ny = 2", "x", "x = 1"),
        ("x = 1\nx = 2", "x", "x = 2"),
        ("x = 1\nx += 1", "x", "x += 1"),
        ("a, (b, *c) = f()", "c", "a, (b, *c) = f()"),
        ("if True:\n    x = 1\nelse:\n    x = 2", "x", "x = 2"),
        ("import os.path", "os", "import os.path"),
        ("from m import a as b", "b", "from m import a as b"),
        ("@d\ndef f(): x = 1", "f", "@d\ndef f(): x = 1"),
        ("class C: pass", "C", "class C: pass"),
        ("for i in s: pass", "i", "for i in s: pass"),
        ("with a as b: pass", "b", "with a as b: pass"),
        ("del x", "x", "del x"),
        ("print(y := 3)", "y", "print(y := 3)"),
        ("x.a.b = 1", "x", "x.a.b = 1"),
        ("x[0] = 1; y = 2", "x", "x[0] = 1"),
        ("x.append(1)", "x", "x.append(1)"),
        ("random.shuffle(x)", "x", "random.shuffle(x)"),
        ("x = 1\nx.sort()", "x", "x = 1"),
        ("f()", "x", ""),
        ("x = = 1", "x", ""),
    ],
)
def test_the_last_statement_that_binds_or_changes_it(code: str, name: str, statement: str) -> None:
    """One that binds it, however deep; otherwise one that may change its object; otherwise none, without a guess."""
    assert statement == last_writer(code, name)[1]


def test_spans_count_characters() -> None:
    """Lines from 1, columns from 0, the end is exclusive."""
    assert Span(line=2, column=5, end_line=2, end_column=10) == last_writer("a = 1\n'ü'; x = 1", "x")[0]


def test_code_that_no_parser_takes() -> None:
    """Nested beyond what Python parses, or endless: no statement is found, and nothing breaks."""
    assert (None, "") == last_writer("x = " + "(" * 10_000, "x")
    assert (None, "") == last_writer("x = 1\n" * 400_000, "x")
