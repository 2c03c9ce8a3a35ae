"""Patches change a copy of the history; conflicts name the step."""

from __future__ import annotations

import pytest

from cenote.harness.patch import Patch
from cenote.harness.patch_errors import PatchConflictError, UnknownStepError
from cenote_worker.history.step import StepRecord

LINE = [
    StepRecord(number=1, names=("data",), kind="injection"),
    StepRecord(number=2, parent=1, code="def f():\n    return 1"),
    StepRecord(number=3, parent=2, code="x = f()"),
]


def codes(patch: Patch) -> list[str]:
    return [step.code for step in patch.applied(LINE)]


def changed(patch: Patch) -> list[tuple[int, bool]]:
    return [(step.number, bool(step.change)) for step in patch.applied(LINE)]


def test_a_step_is_replaced() -> None:
    """It stands for the old one; the others are as they were."""
    assert ["", "def f():\n    return 1", "x = 2"] == codes(Patch.replace_step(3, "x = 2"))
    assert [(1, False), (2, False), (3, True)] == changed(Patch.replace_step(3, "x = 2"))


def test_a_function_is_replaced_where_it_is_defined() -> None:
    """The step is found by its name."""
    assert [(1, False), (2, True), (3, False)] == changed(Patch.replace_function("f", "def f(): return 2"))


def test_a_step_is_edited_inserted_and_removed() -> None:
    """New ones have no number yet."""
    assert ["", "def f():\n    return 2", "x = f()"] == codes(
        Patch.edit(2, "@@ -2 +2 @@\n-    return 1\n+    return 2")
    )
    assert [(1, False), (2, False), (0, True), (3, False)] == changed(Patch.insert_step(2, "y = 1"))
    assert [(0, True), (1, False), (2, False), (3, False)] == changed(Patch.insert_step(0, "y = 1"))
    assert [(1, False), (3, False)] == changed(Patch.remove_step(2))


def test_equal_code_is_no_change() -> None:
    """Then nothing has to run."""
    assert [(1, False), (2, False), (3, False)] == changed(Patch.replace_step(3, "x = f()"))


@pytest.mark.parametrize(
    "patch", [Patch.replace_step(9, ""), Patch.remove_step(9), Patch.insert_step(9, ""), Patch.edit(9, "@@")]
)
def test_a_step_that_is_not_there_is_named(patch: Patch) -> None:
    """Also one of another line."""
    with pytest.raises(UnknownStepError, match="no step 9"):
        patch.applied(LINE)


def test_conflicts_are_typed() -> None:
    """Not found, defined in two steps, no cell."""
    with pytest.raises(PatchConflictError, match="no step defines `g`"):
        Patch.replace_function("g", "def g(): pass").applied(LINE)
    with pytest.raises(PatchConflictError, match="no step defines `ff`; the nearest that are defined: f"):
        Patch.replace_function("ff", "def ff(): pass").applied(LINE)
    twice = [*LINE, StepRecord(number=4, parent=3, code="def f(): return 3")]
    with pytest.raises(PatchConflictError, match="steps 2, 4 define `f`"):
        Patch.replace_function("f", "def f(): pass").applied(twice)
    with pytest.raises(PatchConflictError, match="step 1 is no cell but an injection"):
        Patch.replace_step(1, "data = 2").applied(LINE)


def test_patches_have_names_and_reasons() -> None:
    """Two equal ones are two."""
    one, other = (Patch.replace_step(3, "x = 2", reason="wrong", author="ann") for _ in range(2))
    assert ("wrong", "ann") == (one.reason, one.author)
    assert one.id != other.id


def test_what_came_after_a_patch_stays_when_it_is_taken_back() -> None:
    """Behind the step that the patched line ended with, or what stands for that now."""
    ends = [
        StepRecord(number=6, parent=5, code="y = x"),
        StepRecord(number=8, parent=5, origin=5, code="x = f()"),
    ]
    patched = [LINE[0], StepRecord(number=5, parent=1, origin=3, code="x = f()")]
    for line in ([*patched, ends[0]], [LINE[0], ends[1], ends[0]]):
        restored = Patch.remove_step(2).revert(LINE, 5).applied(line)
        assert [*(record.code for record in LINE), "y = x"] == [step.code for step in restored]
    assert ["y = x"] == [step.code for step in Patch.remove_step(1).revert([], 0).applied([ends[0]])]


def test_steps_that_a_patch_has_moved_are_put_back() -> None:
    """One that stands before another which it is to come behind is run again there."""
    moved = [
        LINE[0],
        StepRecord(number=4, parent=1, origin=3, code="x = f()"),
        StepRecord(number=5, parent=4, origin=2, code=LINE[1].code),
    ]
    restored = Patch.remove_step(2).revert(LINE, 5).applied(moved)
    assert [(1, False), (5, False), (4, True)] == [(step.number, bool(step.change)) for step in restored]


def test_reverting_is_a_patch() -> None:
    """Steps that were only repeated stand; what was changed, removed or inserted is put back."""
    patch = Patch.replace_step(2, "def f():\n    return 2")
    patched = [
        LINE[0],
        StepRecord(number=4, parent=1, origin=2, code="def f():\n    return 2"),
        StepRecord(number=5, parent=4, origin=3, code="x = f()"),
    ]
    back = patch.revert(LINE)
    assert patch.id == back.parent
    line = back.applied(patched)
    assert [(1, False), (4, True), (5, False)] == [(step.number, bool(step.change)) for step in line]
    assert [record.code for record in LINE] == [step.code for step in line]
    removed = (
        Patch.remove_step(2)
        .revert(LINE)
        .applied([LINE[0], StepRecord(number=4, parent=1, origin=3, code="x = f()")])
    )
    assert [(1, False), (0, True), (4, False)] == [(step.number, bool(step.change)) for step in removed]
