"""The tree of steps, against a simple model of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import StepTree


@st.composite
def trees(draw: st.DrawFn) -> tuple[StepTree, dict[int, int]]:
    """A tree of steps, and its parents by number: heads move at will, numbers come in any order."""
    tree, parents = StepTree(), dict[int, int]()
    for number in draw(st.lists(st.integers(1, 40), unique=True, max_size=25)):
        tree.move(draw(st.sampled_from([0, *parents])))
        parents[number] = tree.head
        tree.add(StepRecord(number=number, parent=tree.head))
    return tree, parents


def path(parents: dict[int, int], end: int) -> list[int]:
    return [*path(parents, parents[end]), end] if end else []


@given(trees())
def test_a_line_leads_from_the_start_to_its_step(made: tuple[StepTree, dict[int, int]]) -> None:
    """It follows the parents, and is as long as the step is deep."""
    tree, parents = made
    for end in (0, *parents):
        line = [record.number for record in tree.line(end)]
        assert path(parents, end) == line
        assert len(line) == tree.depth(end)


@given(trees(), st.data())
def test_two_lines_part_behind_their_last_common_step(
    made: tuple[StepTree, dict[int, int]], data: st.DataObject
) -> None:
    """In either order of the two."""
    tree, parents = made
    one, other = (data.draw(st.sampled_from([0, *parents])) for _ in range(2))
    common = [a for a, b in zip(path(parents, one), path(parents, other), strict=False) if a == b]
    ancestor = (common or [0])[-1]
    assert ancestor == tree.ancestor(one, other) == tree.ancestor(other, one)
    assert path(parents, one)[len(common) :] == [record.number for record in tree.between(ancestor, one)]


@pytest.mark.parametrize(
    ("status", "head"), [("ok", 2), ("failed", 2), ("rolled_back", 1), ("refused", 1), ("lost", 0)]
)
def test_the_head_follows_what_stays(status: str, head: int) -> None:
    """A failed step leaves its effects; a rolled back or refused one leaves nothing; a lost one loses everything."""
    tree = StepTree()
    tree.add(StepRecord(number=1))
    tree.add(StepRecord(number=2, parent=1, status=status))  # type: ignore[arg-type]
    assert head == tree.head


def test_a_number_is_used_once() -> None:
    """Nothing is overwritten; the start's number is not available."""
    tree = StepTree()
    tree.add(StepRecord(number=1))
    for number in (1, 0, -1):
        with pytest.raises(ValueError, match="already"):
            tree.add(StepRecord(number=number))


def test_what_is_not_there() -> None:
    """A step cannot follow an unknown step, and a head cannot move to one."""
    tree = StepTree()
    with pytest.raises(ValueError, match="follows step 7"):
        tree.add(StepRecord(number=8, parent=7))
    for ask in (tree.move, tree.line, tree.get, tree.depth):
        with pytest.raises(KeyError):
            ask(7)
