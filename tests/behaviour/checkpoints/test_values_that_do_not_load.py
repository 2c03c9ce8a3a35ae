"""Values whose pickles are made but cannot be loaded: the steps that made them run again, and nothing is refused when
a runtime wakes or a branch begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.runtime import PythonRuntime, foretold

VALUES = {
    "a new type, which pickles as a name": ("import typing\nN = typing.NewType('N', int)", "N(3)", "3"),
    "annotations with it": (
        "import typing\nN = typing.NewType('N', int)\nclass User:\n    number: N\nuser = User(); user.number = N(4)",
        "user.number, User.__annotations__['number'] is N",
        "(4, True)",
    ),
    "an object that says its name": (
        "class Missing:\n    def __reduce__(self):\n        return 'MISSING'\n"
        "MISSING = Missing()\nrow = {'a': MISSING}",
        "row['a'] is MISSING",
        "True",
    ),
    "an object of a class whose `__new__` needs more than its pickle says": (
        "import jinja2\nmade = jinja2.Environment().from_string('{{ 1 + 1 }}')",
        "made.render()",
        "'2'",
    ),
    "a module that a cell has made": (
        "import sys, types\nmade = types.ModuleType('made_up'); made.a = [1]\n"
        "sys.modules['made_up'] = made\nimport made_up",
        "made_up.a, made_up is made, sys.modules['made_up'] is made",
        "([1], True, True)",
    ),
    "an object of a class in such a module": (
        "import sys, types\nmade = types.ModuleType('made_up'); sys.modules['made_up'] = made\n"
        "exec('class A: n = 5', vars(made))\none = made.A()",
        "one.n, type(one) is made.A",
        "(5, True)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
def test_they_are_made_again_by_their_steps(tmp_path: Path, value: str) -> None:
    cell, look, expected = VALUES[value]
    with PythonRuntime(store=tmp_path, name="r") as runtime:
        made = runtime.execute(cell)
        assert made.success, made.error
        runtime.execute("other = [1]")
        runtime.checkpoint()
    prediction = foretold(tmp_path, "r")
    assert ((1,), ()) == (prediction.steps, prediction.unkept)
    assert "other" in prediction.exact
    with PythonRuntime.restore(tmp_path, "r") as woken:
        result = woken.execute(look)
        assert (expected, ()) == (result.value, result.news)
        assert "[1]" == woken.execute("other").value
