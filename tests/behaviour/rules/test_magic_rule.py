"""Magics and shell commands: found as written and as calls, refused except those that compute."""

from __future__ import annotations

import pytest

from cenote import PythonRuntime, SandboxPolicy
from cenote.security import MagicRule, SecurityChecker, default_rules, strict_rules
from cenote_worker.jail.cells.ipython_syntax import to_python


def reasons(code: str, *rules: MagicRule) -> list[str]:
    return [violation.reason for violation in SecurityChecker(rules or [MagicRule()]).check_code(code)]


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        ("!id", "a shell command"),
        ("x = !id", "a shell command"),
        ("if x:\n    !!id", "a shell command"),
        ("%cd /tmp", "%cd"),
        ("x = %sx id", "%sx"),
        ("%%bash\nid", "%%bash"),
        ("%%writefile a.py\nx = 1", "%%writefile"),
        ("%no_such_magic", "%no_such_magic"),
        ("json.loads??", "??"),
    ],
)
def test_by_its_name_in_either_form(cell: str, named: str) -> None:
    """A cell as written, which is not Python, and the calls that it becomes."""
    assert [f"{named} is not allowed here"] == reasons(cell)
    assert [f"{named} is not allowed here"] == reasons(to_python(cell))


@pytest.mark.parametrize(
    "cell",
    [
        "from IPython import get_ipython as shell\nshell().run_line_magic('sx', 'id')",
        "import IPython\nIPython.get_ipython().getoutput('id')",
        "from IPython.core.getipython import get_ipython\nget_ipython().magic('cd /')",
    ],
)
def test_the_object_that_runs_magics(cell: str) -> None:
    """Notebooks exported as programs call it; it accepts any magic by its name."""
    assert {"get_ipython() is not allowed here"} == set(reasons(cell))
    assert [] != SecurityChecker(strict_rules()).check_code("get_ipython().system('id')")


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline",
        "%time f(1)",
        "%timeit -n1 -r1 f(1)",
        "%%time\nf(1)",
        "%%timeit\nf(1)",
        "%%capture out\nf(1)",
        "%who",
        "f?",
        "text = '''\n!id\n%cd\n'''",
        "x = (3\n% y)",
    ],
)
def test_what_computes_is_let_through(cell: str) -> None:
    """By default; in a string or an expression there is no magic."""
    assert [] == reasons(cell) == reasons(to_python(cell))


def test_a_list_of_ones_own() -> None:
    """The listed ones pass as written; the rest is refused."""
    rule = MagicRule(["%cd", "%%writefile"])
    assert [] == reasons("%cd x", rule) == reasons(to_python("%cd x"), rule)
    assert [] == reasons(to_python("%%writefile a\nx"), rule)
    assert ["%who is not allowed here"] == reasons("%who", rule)


def test_a_place_in_the_cell_as_it_was_written() -> None:
    """Line and columns are those of the command."""
    (violation,) = SecurityChecker([MagicRule()]).check_code("x = 1\nif x:\n    !id é\n")
    assert (3, 0, 9) == (violation.line, violation.column, violation.end_column)
    assert "!id é" in violation.message


def test_other_rules_leave_magics_alone() -> None:
    """The default rules are for jails in which shell commands are normal."""
    assert [] == SecurityChecker(default_rules()).check_code(to_python("!ls\n%cd x"))
    assert [] == SecurityChecker(default_rules()).check_code("!ls\n%cd x")


def test_a_long_cell_that_is_not_python_takes_no_time() -> None:
    """It is read outside the jail: a line of blanks must not be scanned again from each blank."""
    checker = SecurityChecker([MagicRule()])
    for line in (" " * 400_000, "a = " * 100_000, "?" * 400_000, "a." * 200_000 + "?"):
        checker.check_code(f"(\n{line}")


def test_nothing_of_a_refused_cell_runs() -> None:
    """In a runtime: the magic before it in the cell has not run either."""
    checker = SecurityChecker(strict_rules())
    with PythonRuntime(sandbox=SandboxPolicy(preload=()), security_checker=checker) as runtime:
        for cell in ("x = 1\n!id", "x = 1\n%cd /tmp", "%%bash\nid", "x = %pwd"):
            error = runtime.execute(cell).error
            assert error is not None
            assert error.reason == "policy"
        assert runtime.execute("%time y = 2").success
        assert runtime.execute("sorted(n for n in dir() if n in 'xy')").value == "['y']"
