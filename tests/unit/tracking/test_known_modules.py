"""Names of imported modules, remembered: present ones are known, later ones are not until they are added."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from cenote_worker.process import modules
from cenote_worker.process.modules import KnownModules

LATE = ("late_one", "wi_late_two")


@pytest.fixture(autouse=True)
def _modules_as_before() -> Iterator[None]:
    before = dict(sys.modules)
    yield
    sys.modules.clear()
    sys.modules.update(before)
    modules.settle()


def test_what_is_imported_is_known() -> None:
    """Whether they were imported before or after the remembering module."""
    sys.modules[LATE[0]] = ModuleType(LATE[0])
    assert KnownModules.imported().unknown() == set()


def test_what_comes_later_is_unknown_until_it_is_added() -> None:
    """And is not reported twice."""
    known = KnownModules.imported()
    sys.modules.update({name: ModuleType(name) for name in LATE})
    assert known.unknown() == set(LATE)
    known.add(LATE)
    assert known.unknown() == set()


def test_a_module_that_goes_and_comes_again_was_known() -> None:
    """Code that reloads modules does that."""
    known = KnownModules.imported()
    sys.modules["json"] = sys.modules.pop("json", ModuleType("json"))
    assert known.unknown() == set()


def test_no_late_one_is_missed_behind_an_early_one_that_came_again() -> None:
    """The early one is last then, where new names are looked for."""
    sys.modules[LATE[0]] = ModuleType(LATE[0])
    before = KnownModules.imported()
    sys.modules[LATE[1]] = ModuleType(LATE[1])
    early = modules._FIRST.last[0]
    sys.modules[early] = sys.modules.pop(early)
    assert before.unknown() == {LATE[1]}
    assert KnownModules.imported().unknown() == set()


def test_what_a_zygote_has_imported_is_not_looked_at_again() -> None:
    """Each name that a fork visits costs a copied page."""
    sys.modules[LATE[0]] = ModuleType(LATE[0])
    modules.settle()
    known = KnownModules.imported()
    assert not known._others
    sys.modules[LATE[1]] = ModuleType(LATE[1])
    assert known.unknown() == {LATE[1]}


def test_names_can_be_chosen() -> None:
    """All others are unknown."""
    assert KnownModules(["sys"]).unknown() == sys.modules.keys() - {"sys"}
