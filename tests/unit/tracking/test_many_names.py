"""The cost of a cell that binds many names grows with their number, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import name
from cenote_worker.jail.tracking import object_index
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import addresses_of
from cenote_worker.jail.tracking.name_table import NameTable

pytestmark = pytest.mark.usefixtures("alone")


def test_what_is_done_for_each_of_many_names(in_process: Callable[[], Steps]) -> None:
    """With three times the names three times the lines run, those in loops once per iteration."""
    few, many = (_lines_for(in_process(), names) for names in (100, 300))
    assert many < 4 * few


def _lines_for(steps: Steps, names: int) -> int:
    counted = 0

    def count(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal counted
        if frame.f_code.co_filename != object_index.__file__:
            return None
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        steps.good("\n".join(f"v{number} = {number}" for number in range(names)))
    finally:
        sys.settrace(before)
    return counted


def test_a_small_cell_beside_many_names_does_not_look_at_each(in_process: Callable[[], Steps]) -> None:
    """Whatever their values: their addresses are compared in bulk."""
    assert _lines_beside(in_process(), 20_000) < 20_000 / 4


def _lines_beside(steps: Steps, names: int) -> int:
    steps.good(f"for number in range({names}):\n    globals()[f'v{{number}}'] = [number]")
    steps.good("x = 1")
    looked = 0

    def count(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal looked
        if "tracking" in frame.f_code.co_filename:
            looked += event in ("line", "call")
            return count
        return None

    watch = steps.tracker.begin(compile("x = 2", "cell", "exec"))
    steps.namespace["x"] = 2
    before = sys.gettrace()
    sys.settrace(count)
    try:
        bound = watch._bound()
        steps.tracker._album.look_at_all(InspectionBudget(1))
    finally:
        sys.settrace(before)
    watch.end()
    assert {name("x")} == bound
    return looked


NAMES = {"a": 1, "b": "text", "c": [], "d": None}


@pytest.mark.parametrize("many", [0, 255, 256, 5_000])
def test_what_has_changed_in_a_namespace(many: int) -> None:
    """Rebound, added, deleted, and deleted and added again; keys that are no text are no names."""
    namespace: dict[Any, object] = {**{f"v{number}": [number] for number in range(many)}, **NAMES, 7: 8}
    before = NameTable(namespace)
    assert set() == set(NameTable(namespace).changed_since(before))
    namespace["b"] = namespace["c"] = ["other"]
    assert {"b", "c"} == set(NameTable(namespace).changed_since(before))
    namespace["e"] = namespace[9] = 5
    after = NameTable(namespace)
    assert {"b", "c", "e"} == set(after.changed_since(before))
    assert after.begins_with(before)
    del namespace["a"]
    namespace["a"] = NAMES["a"]
    moved = NameTable(namespace)
    assert set() == set(moved.changed_since(after))
    assert not moved.begins_with(after)
    del namespace["d"]
    assert {"d"} == set(NameTable(namespace).changed_since(moved))


def test_addresses_are_those_that_python_gives() -> None:
    values: list[object] = [1, "a", [], object(), None, 2.5, "a"]
    assert list(map(id, values)) == memoryview(addresses_of(values)).cast("Q").tolist()
    assert b"" == addresses_of([])
