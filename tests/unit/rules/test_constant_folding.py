"""The text of constant expressions is computed as Python does it, or not at all."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_security.rules.findings import WatchedNames
from cenote_security.rules.reading.abstract_values import Memory
from cenote_security.rules.reading.reader import RecordingReader
from cenote_security.rules.reading.syntax import Reading


def told(expression: str) -> object:
    """The constant that the reader finds for the expression; None if it finds none."""
    tree = ast.parse(expression)
    reading = Reading(tree, WatchedNames(), Memory(), RecordingReader)
    assert isinstance(reading.reader, RecordingReader)
    statement = tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return reading.reader.constant_of(statement.value)


@pytest.mark.parametrize(
    "expression",
    [
        "'o' + 's'",
        "'so'[::-1]",
        "'xosx'[1:3]",
        "''.join(['o', 's'])",
        "''.join([c for c in ['o', 's']])",
        "''.join(map(chr, [111, 115]))",
        "''.join(chr(c - 1) for c in [112, 116])",
        "''.join(reversed('so'))",
        "chr(111) + chr(0x73)",
        "bytes([111, 115]).decode()",
        "bytes.fromhex('6f73').decode('ascii')",
        "b'os'.decode()",
        "str(b'os', 'utf-8')",
        "'%s%s' % ('o', 's')",
        "'%s' % 'os'",
        "'{}{}'.format('o', 's')",
        "'{1}{0}'.format('s', 'o')",
        "f\"{'o'}{'s'}\"",
        "'OS'.lower()",
        "'o-s'.replace('-', '')",
        "'a,os'.split(',')[1]",
        "{'k': 'os'}['k']",
        "['a', 'os'][-1]",
        "max(['json', 'os'])",
        "str.join('', ['o', 's'])",
        "'o'.__add__('s')",
        "('o' 's')",
    ],
)
def test_ways_to_spell_a_name(expression: str) -> None:
    """Each of them gives `os`."""
    assert told(expression) == "os"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("import base64\nbase64.b64decode('b3M=').decode()", "os"),
        ("import codecs\ncodecs.decode('bf', 'rot13')", "os"),
        ("import string\nstring.ascii_lowercase[14] + string.ascii_lowercase[18]", "os"),
        ("import operator\noperator.add('o', 's')", "os"),
        ("a = 'o'\na += 's'\na", "os"),
        ("(a := 'os')\na", "os"),
        ("a, *b = 'x', 'o', 's'\nb[0] + b[1]", "os"),
    ],
)
def test_names_and_modules_take_part(code: str, value: str) -> None:
    """Constants are followed through variables and well-known functions."""
    assert told(code) == value


@pytest.mark.parametrize(
    "expression",
    [
        "'a' * 10**9",
        "'%9999999d' % 1",
        "'{:>99999}'.format(1)",
        "'a' + x",
        "open('x').read()",
        "1 / 0",
        "'a' - 1",
        "[][0]",
        "chr(-1)",
    ],
)
def test_what_is_not_told(expression: str) -> None:
    """Too large, unknown, or an error: no value is given, and no exception raised."""
    assert told(expression) is None


SMALL = st.text("ab%{}_.x", max_size=4).map(repr) | st.integers(-3, 9).map(str)
EXPRESSIONS = st.recursive(
    SMALL,
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from(["+", "*", "%", "-", "^", "//"]), part),
        st.builds("({})[{}]".format, part, st.integers(-2, 2)),
        st.builds("({})[{}:{}]".format, part, st.integers(-2, 2), st.integers(-2, 2)),
        st.builds(
            "({}).{}".format, part, st.sampled_from(["upper()", "split('a')", "format(1)", "strip('a')"])
        ),
        st.builds("'-'.join([{}, {}])".format, part, part),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
def test_what_is_told_is_what_python_computes(expression: str) -> None:
    """The expressions are literals and total operators on them: evaluating them is harmless."""
    found = told(expression)
    if found is None:
        return
    computed = eval(expression, {"__builtins__": {}})
    assert found == (list(computed) if isinstance(computed, tuple) else computed)
