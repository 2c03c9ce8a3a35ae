"""Checking never raises, never takes long, and passes nothing that it could not read."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cenote_security.rules import (
    Context,
    FunctionRule,
    ImportRule,
    RegexRule,
    SecurityChecker,
    SecurityRule,
    default_rules,
    strict_rules,
)
from cenote_security.rules.checker import LONGEST
from cenote_security.rules.reading import constant_folding
from cenote_security.rules.reading.abstract_values import HEAVIEST, Const, items

Load = Callable[[str], dict[str, str]]
STRICT = SecurityChecker(strict_rules())


class AsksEverything(SecurityRule):
    def visit(self, node: object, context: Context) -> None:  # type: ignore[override]
        context.name_of(node)  # type: ignore[arg-type]
        context.constant_of(node)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code", ["", "  \n", "x = (", "eval('1'", "x = '\0'", "x = '\ud800'", "import os\n\x00", "%time x"]
)
def test_what_does_not_parse_violates_nothing(code: str) -> None:
    """Running it will report the error."""
    assert STRICT.check_code(code) == []


@pytest.mark.parametrize(
    "code", ["not " * 2000 + "eval('1')", "x" + ".a" * 5000 + "\neval('1')", "-" * 90000 + "1"]
)
def test_what_is_too_deep_to_read_is_refused(code: str) -> None:
    """The limit of depth depends on the caller's stack: code that cannot be read here may run there."""
    (violation,) = STRICT.check_code(code)
    assert violation.message == "the code is nested too deeply to be checked; split the expression"


def test_what_is_too_long_to_read_is_refused() -> None:
    """A model's list of numbers would take gigabytes of this process."""
    longest = "#" * LONGEST
    assert [] == STRICT.check_code(longest)
    (violation,) = STRICT.check_code(longest + "#")
    assert violation.message.startswith(f"the code is too long to be checked, with more than {LONGEST:,}")
    assert [] == SecurityChecker([]).check_code(longest + "#")


@pytest.mark.parametrize(
    "code",
    [
        "x = " + " + ".join(["'a'"] * 400) + "\neval('1')",
        "if a: pass\n" + "".join(f"elif b == {i}: pass\n" for i in range(300)) + "eval('1')",
        "x = df" + ".assign(a=1)" * 100 + "\neval('1')",
    ],
)
def test_long_chains_are_read(code: str) -> None:
    """Sums, elif and method chains are long in honest code; they are read completely."""
    assert [violation.reason for violation in SecurityChecker([FunctionRule({"eval"})]).check_code(code)] == [
        "function eval is not allowed here"
    ]


NESTED_LOOPS = "x = " + "[" * 6 + "chr(1)" + "".join(f" for {v} in {list(range(60))}]" for v in "abcdef")


@pytest.mark.sweep
@pytest.mark.parametrize(
    "code",
    [
        "x = 'a' * 10**9; y = [0] * 10**9; z = 2**10**10",
        "x = '{:>999999999}'.format(1); y = '%999999999d' % 1; z = f'{1:>999999999}'",
        "x = ['a']\n" + "x = [x, x]\n" * 60,
        "x = {'a': 1}\n" + "x = {'a': x, 'b': x}\n" * 60,
        "x = 'a'\n" + "x = x + x\n" * 60,
        "x = ','.join(['a' * 90] * 90)\n" + "x = x.replace('a', x)\n" * 50,
        "x = 9\n" + "x = x * x\n" * 60,
        NESTED_LOOPS,
        "x = '" + "{" * 100_000 + ".'\ny = '{" + "." * 100_000 + "'",
        "".join(f"if a: x = '{i}'\n" for i in range(2000)),
        "def f(a, b): return g(b, a)\ndef g(a, b): return f(a, b)\n"
        + "".join(f"f('{i}', 1)\n" for i in range(500)),
        "".join(" " * i + f"def f{i}(a):\n" for i in range(30)) + " " * 30 + "return f1(f2)",
    ],
)
def test_nothing_grows_without_bound(code: str) -> None:
    """Exploding literals, nested loops, mutually recursive functions: each takes a moment at most."""
    started = time.process_time()
    STRICT.check_code(code)
    assert time.process_time() - started < 5


def test_folded_text_is_limited() -> None:
    """At the limit a string is resolved; one past it is not."""
    assert (
        constant_folding.binary(_plus(), Const("a" * (constant_folding.LONGEST - 1)), Const("b")) is not None
    )
    assert constant_folding.binary(_plus(), Const("a" * constant_folding.LONGEST), Const("b")) is None


def test_containers_are_limited() -> None:
    """At the limit a list is followed; one past it is unknown."""
    assert items([None] * (HEAVIEST - 1)) is not None
    assert items([None] * HEAVIEST) is None


def _plus() -> object:
    import ast

    return ast.Add()


def test_warnings_of_the_parser_are_neither_shown_nor_fatal() -> None:
    """Model code often has invalid escapes: with warnings as errors it would seem not to parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(SecurityChecker([ImportRule({"os"})]).check_code("x = '\\d'\nimport os")) == 1


def test_an_ordinary_cell_takes_about_a_millisecond(corpus: Load) -> None:
    """Fifty lines, no violation: under 1 ms on a quiet machine; the limit is ten, for a busy machine."""
    lines = [line for code in corpus("ordinary").values() for line in code.splitlines(keepends=True)]
    code = "".join(_standing_alone(lines))
    assert code.count("\n") >= 50
    checker = SecurityChecker(default_rules())
    assert checker.check_code(code) == []
    best = min(_seconds(lambda: checker.check_code(code)) for _ in range(20))
    assert best / (code.count("\n") / 50) < 0.010


def _standing_alone(lines: list[str]) -> list[str]:
    chosen = [
        line for line in lines if line.startswith(("df", "print", "import", "x ", "for name", "    print"))
    ]
    kept: list[str] = []
    for line in chosen:
        try:
            compile("".join([*kept, line]), "", "exec")
        except SyntaxError:
            continue
        kept.append(line)
        if len(kept) == 60:
            break
    return kept


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_checking_never_raises(corpus: Load, data: st.DataObject) -> None:
    """Pieces of real snippets, cut and joined at random."""
    snippets = st.sampled_from(sorted({**corpus("bypasses"), **corpus("ordinary")}.values()))
    first, second = data.draw(snippets), data.draw(snippets)
    cut = data.draw(st.integers(0, len(first)))
    code = data.draw(
        st.sampled_from([first[:cut] + second, second + first[cut:], first + second])
        | st.permutations((first + second).splitlines()).map("\n".join)
    )
    SecurityChecker([*strict_rules(), RegexRule("eval"), AsksEverything()]).check_code(code)
