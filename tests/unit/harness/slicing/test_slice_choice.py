"""Which statements of one cell a slice takes for a name: one rule each."""

from __future__ import annotations

import sys

import pytest

from cenote.harness.slicing.statement_choice import OUTSIDE, CellContext, Chooser
from cenote.harness.slicing.statements import bodies_of, statements_of

KINDS = {"rows": "list", "n": "int", "text": "str", "math": "module"}
"""Names that exist before the cell."""

PLAIN = frozenset(("fill", "call", "read", "write"))
"""Functions without a closure or other references."""


def chosen(code: str, *made: str, wanted: str = "", **around: object) -> list[str] | None:
    statements = statements_of(code)
    assert statements is not None
    used, stored = bodies_of(code)
    setting = CellContext(before=KINDS, plain=PLAIN, used=used, stored=stored, **around)  # type: ignore[arg-type]
    chooser = Chooser(statements, setting)
    choice = chooser.choose(made, wanted.split())
    if choice is not None and choice.changed.difference(made):
        choice = chooser.choose({*made, *choice.changed})
    return None if choice is None else [each.text for each in choice.statements]


def test_what_only_reads_has_no_part() -> None:
    """Operators and loops over values of known types, builtin functions."""
    assert ["x = n"] == chosen("y = n + 1\nx = n\nprint(rows)\nz = [rows, x]", "x")


def test_a_call_has_a_part_where_it_may_change_what_is_wanted() -> None:
    """It may change its arguments, and objects shared with them."""
    code = "x = []\ny = [x]\nfill(y)\nfill(n)\nz = n"
    assert ["x = []", "y = [x]", "fill(y)"] == chosen(code, "x", after={"x": "list"})
    assert ["z = n"] == chosen(code, "z", after={"z": "int"})


def test_what_once_shared_objects_may_do_so_still() -> None:
    """The history has the sharing; no statement of this cell shows it."""
    groups = [frozenset(("p", "q"))]
    assert ["q.append(1)"] == chosen("q.append(1)\nother.append(1)", "p", groups=groups)


def test_a_call_may_run_functions_that_change_what_they_speak_of() -> None:
    """Whichever functions those may be: `call` may have received `bump` long ago."""
    code = "def bump():\n    box.append(1)\nbox = []\ncall(n)\nz = box"
    assert ["box = []", "call(n)", "z = box"] == chosen(code, "z")


def test_a_name_that_functions_bind_is_never_taken_for_fixed() -> None:
    """A number that a function declares global."""
    code = "def bump():\n    global n\n    n = 5\nbump()\nz = n"
    assert ["def bump():\n    global n\n    n = 5", "bump()", "z = n"] == chosen(
        code, "z", after={"z": "int"}
    )


def test_files_and_hidden_state_keep_calls_together() -> None:
    """It is unknown which of them reads what another has written."""
    code = "write(n)\nx = read(text)\ny = n"
    assert ["write(n)", "x = read(text)"] == chosen(code, "x", outside=True)
    assert ["x = read(text)"] == chosen(code, "x", after={"x": "str"})
    assert ["write(n)", "x = read(text)"] == chosen(code, OUTSIDE, outside=True)


def test_what_is_put_back_is_needed_where_the_change_is() -> None:
    """Though the cell as a whole leaves it unchanged."""
    code = "rows.append(1)\nk = len(rows)\nrows.pop()"
    assert ["rows.append(1)", "k = len(rows)"] == chosen(code, "k", after={"k": "int"})
    assert code.split("\n") == chosen(code, "k", wanted="rows", after={"k": "int"})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
@pytest.mark.parametrize(
    "later",
    ["type X = fill(box)", "class X[T: fill(box)]: pass", "def X[T: (fill(box), int)](): pass"],
)
def test_what_is_worked_out_later_may_be_so_in_any_call(later: str) -> None:
    """Making the type has no effect: its value is computed on first access."""
    code = f"box = []\n{later}\ncall(X)\ny = n\nz = box"
    used, _ = bodies_of(code)
    assert {"fill", "box"} <= used
    assert ["box = []", later, "call(X)", "z = box"] == chosen(code, "z")
    assert ["y = n"] == chosen(code, "y")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
def test_a_function_with_type_parameters_holds_something() -> None:
    """Any code may set attributes of its type parameters."""
    first, second, _ = statements_of("def f(x): pass\ndef f[T](x: T): pass\nf") or ()
    assert (True, False) == (first.is_plain_function, second.is_plain_function)


def test_nothing_is_said_of_what_no_statement_can_have_written() -> None:
    """The whole step is needed."""
    assert chosen("x = 1\ny = 2", "elsewhere") is None


@pytest.mark.parametrize(
    "code", ["x = 1", "x = (", "%time x = 1\ny = 2", "from math import *\nx = pi", "x = 1\r\ny = 2", ""]
)
def test_cells_that_are_not_taken_apart(code: str) -> None:
    """One statement, no plain Python, unknown names, lines that are counted differently."""
    assert statements_of(code) is None


def test_a_cell_that_is_too_deep_is_not_taken_apart() -> None:
    """A sum of a thousand names is a thousand operators, one inside the other."""
    assert statements_of(f"x = 1\ny = {'x + ' * 1000}x") is None


def test_the_text_of_a_statement() -> None:
    """Whole lines with decorators and comments if no other statement is on them; columns in characters."""
    code = "@keep\ndef f():\n    return 1  # why\nä = 'ü'; b = 2"
    texts = [(each.text, each.span.line, each.span.column) for each in statements_of(code) or ()]
    assert [("@keep\ndef f():\n    return 1  # why", 1, 0), ("ä = 'ü'", 4, 0), ("b = 2", 4, 9)] == texts
