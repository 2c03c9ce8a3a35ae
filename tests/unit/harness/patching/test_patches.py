"""Patches change a copy of the history; conflicts name the step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cenote.harness.patching.errors import PatchConflictError, UnknownStepError
from cenote.harness.patching.patch import Patch
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import StepTree

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
    """The new step replaces the old one; the others are unchanged."""
    assert ["", "def f():\n    return 1", "x = 2"] == codes(Patch.replace_step(3, "x = 2"))
    assert [(1, False), (2, False), (3, True)] == changed(Patch.replace_step(3, "x = 2"))


def test_a_function_is_replaced_where_it_is_defined() -> None:
    """The step is found by the function's name."""
    assert [(1, False), (2, True), (3, False)] == changed(Patch.replace_function("f", "def f(): return 2"))


def test_a_step_is_edited_inserted_and_removed() -> None:
    """Inserted steps have no number yet."""
    assert ["", "def f():\n    return 2", "x = f()"] == codes(
        Patch.edit(2, "@@ -2 +2 @@\n-    return 1\n+    return 2")
    )
    assert [(1, False), (2, False), (0, True), (3, False)] == changed(Patch.insert_step(2, "y = 1"))
    assert [(0, True), (1, False), (2, False), (3, False)] == changed(Patch.insert_step(0, "y = 1"))
    assert [(1, False), (3, False)] == changed(Patch.remove_step(2))


def test_equal_code_is_no_change() -> None:
    """Then no step has to run."""
    assert [(1, False), (2, False), (3, False)] == changed(Patch.replace_step(3, "x = f()"))


@pytest.mark.parametrize(
    "patch", [Patch.replace_step(9, ""), Patch.remove_step(9), Patch.insert_step(9, ""), Patch.edit(9, "@@")]
)
def test_a_step_that_is_not_there_is_named(patch: Patch) -> None:
    """Also a step of another line."""
    with pytest.raises(UnknownStepError, match="no step 9"):
        patch.applied(LINE)


def test_conflicts_are_typed() -> None:
    """Not found, defined in two steps, no cell."""
    with pytest.raises(PatchConflictError, match="no step defines `g`"):
        Patch.replace_function("g", "def g(): pass").applied(LINE)
    with pytest.raises(PatchConflictError, match="no step defines `ff`; the nearest that are defined: f"):
        Patch.replace_function("ff", "def ff(): pass").applied(LINE)
    with pytest.raises(PatchConflictError, match=r"steps bind `x` \(3\), and none defines it by `def`"):
        Patch.replace_function("x", "def x(): pass").applied(LINE)
    twice = [*LINE, StepRecord(number=4, parent=3, code="def f(): return 3")]
    with pytest.raises(PatchConflictError, match="steps 2, 4 define `f`"):
        Patch.replace_function("f", "def f(): pass").applied(twice)
    with pytest.raises(PatchConflictError, match="step 1 is no cell but an injection"):
        Patch.replace_step(1, "data = 2").applied(LINE)


def test_patches_have_names_and_reasons() -> None:
    """Two equal patches have different ids."""
    one, other = (Patch.replace_step(3, "x = 2", reason="wrong", author="ann") for _ in range(2))
    assert ("wrong", "ann") == (one.reason, one.author)
    assert one.id != other.id


def tree(*lines: Sequence[StepRecord]) -> StepTree:
    made = StepTree()
    for record in dict.fromkeys(record for line in lines for record in line):
        made.add(record)
    return made


def again(number: int, parent: int, origin: int, code: str) -> StepRecord:
    return StepRecord(number=number, parent=parent, origin=origin, code=code)


TWO = LINE[1].code.replace("1", "2")
PATCHED = [LINE[0], again(4, 1, 2, TWO), again(5, 4, 3, "x = f()")]
"""The second step was replaced."""


def taken_back(after: Sequence[StepRecord], line: Sequence[StepRecord]) -> list[tuple[int, str, bool]]:
    """The line after a revert of the patch that turned LINE into another."""
    known = tree(LINE, after, line)
    back = Patch.remove_step(2).revert(LINE, after, known.first).applied(line)
    return [(step.number, step.code, bool(step.change)) for step in back]


def test_reverting_is_a_patch() -> None:
    """Repeated steps stand; changed, removed and inserted steps are restored."""
    patch = Patch.replace_step(2, TWO)
    assert patch.id == patch.revert(LINE, PATCHED, int).parent
    assert [(1, "", False), (4, LINE[1].code, True), (5, "x = f()", False)] == taken_back(PATCHED, PATCHED)
    removed = [LINE[0], again(4, 1, 3, "x = f()")]
    assert [(1, "", False), (2, LINE[1].code, True), (4, "x = f()", False)] == taken_back(removed, removed)
    inserted = [LINE[0], again(4, 1, 0, "new"), again(5, 4, 2, LINE[1].code), again(6, 5, 3, "x = f()")]
    assert [(1, "", False), (5, LINE[1].code, False), (6, "x = f()", False)] == taken_back(inserted, inserted)


def test_what_came_after_a_patch_stays_when_it_is_taken_back() -> None:
    """Steps, and patches of other steps or of other lines of the same step, however many."""
    more = [LINE[0], again(6, 1, 4, TWO), again(7, 6, 5, "x = f() + 1"), again(8, 7, 0, "y = x")]
    most = [
        LINE[0],
        again(9, 1, 6, f"# new\n\n\n\n{TWO}"),
        again(10, 9, 7, "x = f() + 1"),
        again(11, 10, 8, "y = x"),
    ]
    known = tree(LINE, PATCHED, more, most)
    for line, first in ((more, LINE[1].code), (most, f"# new\n\n\n\n{LINE[1].code}")):
        back = Patch.replace_step(2, TWO).revert(LINE, PATCHED, known.first).applied(line)
        assert ["", first, "x = f() + 1", "y = x"] == [step.code for step in back]
        assert [False, True, False, False] == [bool(step.change) for step in back]


def test_what_is_in_the_way_of_taking_a_patch_back_is_a_conflict() -> None:
    """Nothing is guessed, and a line without the patch is not changed silently."""
    with pytest.raises(PatchConflictError, match="step 6 was changed by a later patch too"):
        taken_back(PATCHED, [LINE[0], again(6, 1, 4, "def f():\n    return 3")])
    inserted = [*LINE, again(4, 3, 0, "new")]
    with pytest.raises(PatchConflictError, match="step 5 was changed"):
        taken_back(inserted, [*LINE, again(5, 3, 4, "newer")])
    with pytest.raises(PatchConflictError, match="has nothing of it"):
        taken_back(PATCHED, [*LINE, again(6, 3, 0, "y = x")])


def test_steps_that_a_patch_has_moved_are_put_back() -> None:
    """A step that stands before its later place is run again there."""
    moved = [LINE[0], again(4, 1, 3, "x = f()"), again(5, 4, 2, LINE[1].code)]
    later = [*moved, again(6, 5, 0, "y = x")]
    put_back = [(1, "", False), (5, LINE[1].code, False), (4, "x = f()", True)]
    assert put_back == taken_back(moved, moved)
    assert [*put_back, (6, "y = x", False)] == taken_back(moved, later)
    one, two, three = again(1, 0, 0, "a"), again(2, 1, 0, "b"), again(3, 2, 0, "c")
    third_first = [again(4, 0, 3, "c"), again(5, 4, 1, "a"), again(6, 5, 2, "b")]
    mixed = [again(7, 0, 5, "a"), again(8, 7, 4, "c"), again(9, 8, 6, "b")]
    known = tree([one, two, three], third_first, mixed)
    with pytest.raises(PatchConflictError, match="another order"):
        Patch.remove_step(2).revert([one, two, three], third_first, known.first).applied(mixed)
