"""Merges: changes that come back from a branch, and reports where both sides have changed something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import pytest

from cenote.harness import Patch
from cenote.runtime import Function, MergeConflictError, PythonRuntime, Variable
from cenote.runtime.core.merging import changes, conflicts, since
from cenote_security.errors import NotTransferableError, UsageError
from cenote_worker.execution.trace import ABSENT, ANYTHING, StepTrace, Version, file, name
from cenote_worker.history.step import StepRecord
from cenote_worker.history.tree import StepTree

pytestmark = pytest.mark.usefixtures("where")

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]


def step(number: int, **writes: str) -> StepRecord:
    located = {name(each): Version(version) for each, version in writes.items()}
    return StepRecord(number=number, trace=StepTrace(writes=MappingProxyType(located)))


def test_changes_are_the_last_versions() -> None:
    """Files are not variables; a step that may have written anything makes the result uncertain."""
    places = {name("a"): ABSENT, file("f"): Version("9"), ANYTHING: Version("?")}
    last = StepRecord(number=3, trace=StepTrace(writes=MappingProxyType(places)))
    found = changes([step(1, a="1", b="2"), step(2, b="3"), last])
    assert ({"a": ABSENT, "b": "3"}, (3,)) == (found.versions, found.unsure)


def test_a_line_that_left_the_fork_s_is_compared_with_that() -> None:
    """A patch reached behind the fork: equal results are no change; values no longer made are absent, or restored."""
    tree = StepTree()
    for record in (step(1, a="1", d="1"), step(2, b="2", c="3", d="2", e="5")):
        tree.add(replace(record, parent=tree.head))
    assert {} == since(tree, 2).versions
    tree.move(1)
    tree.add(replace(step(3, b="2", c="4", f="6"), parent=1))
    assert {"c": "4", "f": "6", "d": "?", "e": ABSENT} == since(tree, 2).versions


def test_a_patch_in_a_branch_of_what_came_before_it_is_merged(make: Make, fork: Fork) -> None:
    """A value changed by the source and only recomputed by the branch stays; injected values are not deleted."""
    source = make(variables=[Variable("raw", [1, 2])])
    for cell in ("n = raw.pop()", "kept = [0]", "twice = 2 * n", "gone = 1"):
        source.execute(cell)
    (branch,) = fork(source)
    source.execute("kept.append(1)")
    state = branch.state
    another, without = Patch.replace_step(1, "n = raw[0] + 4"), Patch.remove_step(4)
    patch = Patch(changes=(*another.changes, *without.changes))
    assert "applied" == state.apply(state.plan(patch)).status
    merged = source.merge(branch)
    assert ({"n", "twice", "raw"}, ("gone",)) == (set(merged.taken), merged.deleted)
    assert "([1, 2], 5, [0, 1], 10)" == source.execute("raw, n, kept, twice").value


def test_conflicts_are_different_versions() -> None:
    """The same change on both sides is no conflict; an unknown version equals no other."""
    ours = changes([step(1, same="1", other="1", unknown="?1", mine="1")])
    theirs = changes([step(2, same="1", other="2", unknown="?1", yours="1")])
    assert ("other", "unknown") == conflicts(ours, theirs, ["same", "other", "unknown", "mine", "yours"])


@pytest.mark.at("embedded", "relayed")
def test_what_a_branch_has_changed_comes_back(make: Make, fork: Fork) -> None:
    """New, rebound and mutated variables; deleted ones are deleted; others are unchanged."""
    source = make(functions=[Function(print, name="say", host=True)])
    source.execute("kept, rows, gone = [1], [1], 1")
    (branch,) = fork(source)
    branch.execute("rows.append(2)\nnew = {'a': 1}\ndel gone")
    source.execute("ours = 3")
    merged = source.merge(branch)
    assert ({"rows", "new"}, ("gone",)) == (set(merged.taken), merged.deleted)
    shown = "(kept, rows, new, ours, 'gone' in globals())"
    assert "([1], [1, 2], {'a': 1}, 3, False)" == source.execute(shown).value


def test_what_was_displayed_last_is_each_side_s_own(make: Make, fork: Fork) -> None:
    """`_` changes with most cells and belongs to no one side; it comes back only on request."""
    runtime = make()
    runtime.execute("n = 1\n'ours before'")
    (branch,) = fork(runtime)
    runtime.execute("'ours'")
    branch.execute("n = 2\n'theirs'")
    assert ("n",) == runtime.merge(branch).taken
    assert "'ours'" == runtime.execute("_").value
    assert ("_",) == runtime.merge(branch, ["_"], on_conflict="theirs").taken


@pytest.mark.at("embedded", "relayed")
def test_conflicts_are_refused_or_decided(make: Make, fork: Fork) -> None:
    """Refused by default, and then nothing is merged."""
    source = make()
    source.execute("x = y = 0")
    (branch,) = fork(source)
    branch.execute("x, y = 1, 1")
    source.execute("x = 2")
    with pytest.raises(MergeConflictError) as refused:
        source.merge(branch)
    assert ("x",) == refused.value.names
    assert "(2, 0)" == source.execute("(x, y)").value
    assert (("x",), ("y",)) == (source.merge(branch, on_conflict="ours").conflicts, ("y",))
    assert "(2, 1)" == source.execute("(x, y)").value
    source.merge(branch, ["x"], on_conflict="theirs")
    assert "(1, 1)" == source.execute("(x, y)").value


def test_a_branch_is_merged_again(make: Make, fork: Fork) -> None:
    """Changes of both sides since the last merge count; after a rollback of the merge, all since the fork."""
    source = make()
    source.execute("x, y, z = 0, 0, 0")
    (branch,) = fork(source)
    branch.execute("x, y = [1], 1")
    assert {"x", "y"} == set(source.merge(branch).taken)
    assert () == source.merge(branch).taken
    branch.execute("x.append(2)")
    source.execute("y, z = 5, 5")
    assert ("x",) == source.merge(branch).taken
    assert "([1, 2], 5, 5)" == source.execute("(x, y, z)").value
    branch.execute("y = 2")
    with pytest.raises(MergeConflictError, match="changed y since"):
        source.merge(branch)
    assert ("y",) == source.merge(branch, on_conflict="ours").conflicts
    assert () == source.merge(branch).conflicts
    source.rollback(1)
    assert {"x", "y"} == set(source.merge(branch).taken)
    assert "([1, 2], 2, 0)" == source.execute("(x, y, z)").value


def test_what_was_left_is_not_merged(make: Make, fork: Fork) -> None:
    """A conflict over a value that the branch could not hand over is a conflict the next time, too."""
    source = make()
    source.execute("x = 0")
    (branch,) = fork(source)
    source.execute("x = 1")
    branch.execute("x = (i for i in range(3))")
    assert {"x"} == set(source.merge(branch, on_conflict="theirs").left)
    with pytest.raises(MergeConflictError, match="changed x since"):
        source.merge(branch)


@pytest.mark.at("embedded", "relayed")
def test_what_cannot_be_given_away_is_left(make: Make, fork: Fork) -> None:
    """Named in the report; an error if the caller asks for it by name."""
    source = make()
    source.execute("x = 0")
    (branch,) = fork(source)
    branch.execute("x = 1\ng = (i for i in range(3))")
    with pytest.raises(NotTransferableError):
        source.merge(branch, ["x", "g"])
    assert "0" == source.execute("x").value
    merged = source.merge(branch)
    assert (("x",), {"g"}) == (merged.taken, set(merged.left))


@pytest.mark.at("embedded", "relayed")
def test_only_branches_of_this_runtime(make: Make, fork: Fork) -> None:
    """Variables of an unrelated runtime are refused; so is an unknown way to settle conflicts."""
    source, stranger = make(), make()
    (branch,) = fork(source)
    with pytest.raises(UsageError, match="branch"):
        stranger.merge(branch)
    with pytest.raises(UsageError, match="on_conflict"):
        source.merge(branch, on_conflict="both")  # type: ignore[arg-type]
