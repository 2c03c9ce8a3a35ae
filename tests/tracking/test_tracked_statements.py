"""Sub-cell precision, by tables."""

from __future__ import annotations

import pytest

from cenote_worker.results import Span
from cenote_worker.tracking.statements import definition_of, statements_of


@pytest.mark.parametrize(
    ("source", "defined", "used", "changed", "deleted"),
    [
        ("x = 1", "x", "", "", ""),
        ("x += y", "x", "x y", "", ""),
        ("x = x + 1", "x", "x", "", ""),
        ("a, (b, *c) = d", "a b c", "d", "", ""),
        ("import os.path as p, sys", "p sys", "", "", ""),
        ("import os.path", "os", "", "", ""),
        ("from m import a as b", "b", "", "", ""),
        ("def f(x=d):\n    y = g(x)\n    return y", "f", "d g", "", ""),
        ("def f():\n    global n\n    n = 1", "f n", "", "", ""),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = y\n    return g", "f", "y", "", ""),
        ("@deco(k)\nclass C(B, metaclass=M):\n    z = v\n    def m(self): return w", "C", "deco k B M v w", "", ""),
        ("r = [i * k for i in s]", "r", "k s", "", ""),
        ("for i in s:\n    t = i", "i t", "s i", "", ""),
        ("with o() as h:\n    pass", "h", "o", "", ""),
        ("(y := f(x))", "y", "f x", "", ""),
        ("df['a'] = s", "", "df s", "df", ""),
        ("a.b[0].c = 1", "", "a", "a", ""),
        ("f(x).y = 1", "", "f x", "f", ""),
        ("del a[0], b", "", "a b", "a", "b"),
        ("f = lambda x: x + k", "f", "k", "", ""),
        ("print(len(x))", "", "x", "", ""),
        ("try:\n    x = 1\nexcept E as e:\n    y = e", "x e y", "E e", "", ""),
    ],
)  # fmt: skip
def test_a_statement(source: str, defined: str, used: str, changed: str, deleted: str) -> None:
    """What it binds, reads, stores into and unbinds."""
    (statement,) = statements_of(source)
    assert set(defined.split()) == {definition.name for definition in statement.definitions}
    assert set(used.split()) <= statement.uses | set(deleted.split())
    assert statement.uses <= set(used.split()) | set(deleted.split())
    assert set(changed.split()) == statement.changes
    assert set(deleted.split()) == statement.deletes


def test_the_span_of_a_definition_has_its_decorators() -> None:
    """From the `@` of the first to the end of the body, in characters."""
    source = "x = 'äöü'\n@one\n@two\ndef f():\n    return 'ä'  # done\ny = f()\n"
    found = definition_of(source, "f")
    assert found is not None
    assert ("function", Span(line=2, column=0, end_line=5, end_column=14)) == (found.kind, found.span)


def test_the_last_definition_holds() -> None:
    found = definition_of("def f(): return 1\ndef f(): return 2", "f")
    assert found is not None
    assert 2 == found.span.line


def test_two_statements_of_one_line() -> None:
    first, second = statements_of("ä = 1; b = ä")
    assert Span(line=1, column=0, end_line=1, end_column=5) == first.span
    assert Span(line=1, column=7, end_line=1, end_column=12) == second.span


def test_kinds() -> None:
    kinds = [
        statement.definitions[0].kind
        for statement in statements_of("import a\nclass B: pass\ndef c(): pass\nd = 1")
    ]
    assert ["import", "class", "function", "value"] == kinds
