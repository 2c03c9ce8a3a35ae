"""Instances that are described together: their dictionaries are known to others only where others have them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from cenote_worker.execution.trace import name
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.object_index import ObjectIndex
from cenote_worker.jail.tracking.process_state.modules import OwnModules

CODE = """
class Entry:
    def __init__(self, i):
        self.i, self.name = i, f"n{i}"
many = [Entry(i) for i in range(40)]
behind = [many[0]]
"""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> ObjectIndex:
    home = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", home)
    exec(CODE, vars(home))
    return ObjectIndex(vars(home), OwnModules())


def look(index: ObjectIndex) -> dict[str, str]:
    index.forget()
    found, budget = {}, InspectionBudget(60)
    names = [each for each in ("many", "behind", "table") if each in index.namespace]
    index.look_at(map(name, names), budget)
    for each in names:
        found[each] = index.version(name(each), budget)
    return found


def test_a_dictionary_that_another_name_has_is_shared(index: ObjectIndex) -> None:
    before = look(index)
    assert {name("behind")} == index.sharing(name("many"))
    exec("table = vars(many[7])", index.namespace)
    after = look(index)
    assert {name("behind"), name("table")} == index.sharing(name("many"))
    assert before["many"] == after["many"]


def test_a_dictionary_that_only_its_instance_has(index: ObjectIndex) -> None:
    look(index)
    picture = index.known(name("many"))
    assert picture is not None
    many = index.namespace["many"]
    assert isinstance(many, list)
    assert picture.holds.keys().isdisjoint(map(id, map(vars, many)))
    assert picture.holds.keys() >= set(map(id, many))


def test_what_comes_behind_has_the_same_number(index: ObjectIndex) -> None:
    exec("many = (many, [Entry(1)], [])", index.namespace)
    before = look(index)
    exec("table = vars(many[0][7])", index.namespace)
    assert before["many"] == look(index)["many"]
    exec("del table; many[0][7].i = 5", index.namespace)
    assert before["many"] != look(index)["many"]
