"""A cell may replace or delete any built-in function. What Cenote does itself does not depend on that."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest
from tests.support.forks.fixtures import Fork, Make

from cenote.runtime import Variable
from cenote_security.policy import SandboxPolicy

_OTHERS = {"copyright", "credits", "exit", "help", "input", "license", "quit"}
"""Objects of `site`, and the one that Cenote has put there."""

FUNCTIONS = [
    name
    for name, value in vars(builtins).items()
    if callable(value) and name[0].islower() and name not in _OTHERS
]
NAMES = [*sorted(FUNCTIONS), "AttributeError", "Exception", "KeyError", "TypeError", "ValueError"]

MADE = "\n".join(
    (
        "import builtins, collections, datetime",
        "class Point:",
        "    def __init__(self): self.x = [1, 2]",
        "point, table = Point(), {'a': [1, {2}]}",
        "held = collections.OrderedDict(a=datetime.datetime(2020, 1, 1))",
        "def add(x): return x + 1",
    )
)


@pytest.mark.long
@pytest.mark.parametrize("way", ["image", "value"])
@pytest.mark.parametrize("part", range(8))
def test_each_of_them_may_be_none(
    make: Make, fork: Fork, tmp_path: Path, request: pytest.FixtureRequest, way: str, part: int
) -> None:
    if way == "value":
        request.getfixturevalue("by_value")
    runtime = make(store=tmp_path, name="r", sandbox=SandboxPolicy(preload=()))
    assert runtime.execute(MADE).success
    for name in NAMES[part::8]:
        assert runtime.execute(f"held_back = builtins.{name}; builtins.{name} = None").success, name
        _try_all(runtime, fork, name)
        assert runtime.execute(f"builtins.{name} = held_back; del held_back").success, name


@pytest.mark.parametrize("change", ["builtins.len = None", "del builtins.len", "builtins.str = None"])
def test_a_missing_one_stays_missing_in_copies_by_value(
    make: Make, fork: Fork, tmp_path: Path, by_value: None, change: str
) -> None:
    """It is Cenote that does without the change, not the program."""
    runtime = make(store=tmp_path, name="r", sandbox=SandboxPolicy(preload=()))
    runtime.execute(MADE)
    runtime.execute(change)
    ask = "vars(builtins).get('len'), vars(builtins).get('str')"
    expected = runtime.execute(ask).value
    assert "None" in expected
    assert {"a": [1, {2}]} == runtime.retrieve("table")
    (branch,) = fork(runtime)
    assert expected == branch.execute(ask).value
    assert expected == runtime.execute(ask).value


def _try_all(runtime: object, fork: Fork, name: str) -> None:
    assert runtime.execute("1 + 1").value == "2", name
    assert "point" in {each.name for each in runtime.describe()}, name
    assert {"a": [1, {2}]} == runtime.retrieve("table"), name
    assert ["a"] == list(runtime.retrieve("held")), name
    runtime.inject(Variable(f"given_{name}", {"k": [1, (2,)]}))
    runtime.update_variable("table", {"a": [1, {2}]})
    runtime.share("held")
    runtime.delete(f"given_{name}")
    (branch,) = fork(runtime)
    assert branch.execute("point.x, add(1)").value == "([1, 2], 2)", name
    branch.close()
    runtime.checkpoint()
