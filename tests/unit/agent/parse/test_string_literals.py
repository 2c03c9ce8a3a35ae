"""StringLiterals: does a line begin inside a string literal?"""

from __future__ import annotations

import pytest

from cenote.agent.parse.scanners import StringLiterals


def insides(source: str) -> list[bool]:
    """For each line of `source`, whether the line after it begins inside a literal."""
    literals = StringLiterals()
    found = []
    for line in source.split("\n"):
        literals.feed(line)
        found.append(literals.inside)
    return found


@pytest.mark.parametrize(
    ("expected", "source"),
    [
        ([False], "x = 'a' + \"b\""),
        ([True, True, False], 'x = """one\ntwo\nthree"""'),
        ([True, False], "x = '''it\"s\n'''"),
        ([False, False], "# don't\nx = 1"),
        ([False, False], "x = 'never closed\ny = 1"),
        ([False], "x = '''a''' + \"\"\"b\"\"\""),
        ([True, False], "x = 'goes on \\\nhere'"),
        ([False], "x = 'ends in a backslash \\\\'"),
        ([False, False], "x = 'unclosed \\\\\\\\\ny = 1"),
        ([True, True], 'x = """\\"""\n'),
        ([True, False], "x = r'''\\\n'''"),
        ([False], "x = ''; y = \"\"; z = ''''''"),
        ([True], "x = '#' '''"),
        ([False], 'f"{row["a"]}"'),
    ],
)
def test_it_knows_where_a_literal_ends(expected: list[bool], source: str) -> None:
    """Triple quotes span lines, others only with a backslash; comments and escapes count."""
    assert expected == insides(source)
