"""A session remembers the meaning of names between cells."""

from __future__ import annotations

from cenote_security.rules import CheckSession, FunctionRule, ImportRule, SecurityChecker


def session(*functions: str) -> CheckSession:
    return SecurityChecker([FunctionRule(functions), ImportRule({"ctypes"})]).session()


def test_aliases_are_remembered() -> None:
    """`o = os` in one cell, `o.system` in a later one."""
    cells = session("os.system")
    assert cells.check_code("import os") == []
    assert cells.check_code("o = os") == []
    assert len(cells.check_code("o.system('id')")) == 1
    assert SecurityChecker([FunctionRule({"os.system"})]).check_code("o.system('id')") == []


def test_fields_and_strings_are_remembered() -> None:
    """Including values of an attribute or a constant."""
    cells = session("os.system")
    assert cells.check_code("import os\nbox.tool = os\nname = 'sys' + 'tem'") == []
    assert len(cells.check_code("box.tool.system('id')")) == 1
    assert len(cells.check_code("getattr(os, name)('id')")) == 1


def test_a_refused_cell_leaves_nothing() -> None:
    """It did not run, so its bindings do not exist."""
    cells = session("eval")
    assert len(cells.check_code("def open(x): pass\nimport ctypes")) == 1
    assert len(session("open").check_code("open('x')")) == 1


def test_what_a_cell_hides_is_sure_once_it_succeeded() -> None:
    """`1 / 0` before `def eval` leaves the builtin in place; only the runtime knows whether the `def` was reached."""
    cells = session("eval")
    assert cells.check_code("risky()\ndef eval(x): return x") == []
    assert len(cells.check_code("eval('1')")) == 1
    assert cells.check_code("risky()\ndef eval(x): return x") == []
    cells.succeeded()
    assert cells.check_code("eval('1')") == []


def test_deleting_brings_the_builtin_back() -> None:
    """Even if it is uncertain that the deletion was reached."""
    cells = session("eval")
    cells.check_code("def eval(x): return x")
    cells.succeeded()
    cells.check_code("del eval")
    assert len(cells.check_code("eval('1')")) == 1


def test_injected_names_hide_builtins() -> None:
    """A function called `open` that the host injected is not the builtin."""
    cells = session("open")
    cells.define("open", "door")
    assert cells.check_code("open(door)") == []


def test_injected_functions_can_be_forbidden() -> None:
    """By their own name."""
    cells = session("transfer")
    cells.define("transfer")
    assert len(cells.check_code("send = transfer\nsend(1)")) == 2


def test_a_reset_forgets() -> None:
    """After it, names have their meaning in a new namespace."""
    cells = session("os.system")
    cells.check_code("import os as o")
    cells.forget()
    assert cells.check_code("o.system('id')") == []
