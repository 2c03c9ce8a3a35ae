"""Applying a plan: all or nothing, with progress for each step, and no external effect is repeated."""

from __future__ import annotations

import pytest
from tests.support.harness.laboratory import Laboratory

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, Progress, apply_plan
from cenote.harness.patching.errors import StalePlanError, StateNotKeptError
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan


def ran(*codes: str) -> Laboratory:
    laboratory = Laboratory(by_name=True)
    for code in codes:
        laboratory.execute(None, code)
    laboratory.executed.clear()
    laboratory.answers_only = True
    return laboratory


def apply(laboratory: Laboratory, patch: Patch, options: ApplyOptions | None = None) -> ApplyResult:
    return apply_plan(make_plan(patch, laboratory.line(), laboratory.kept()), laboratory, options)


def test_the_new_history_is_a_branch() -> None:
    """Its steps replace old ones, executed or reused; the old line remains."""
    laboratory = ran("a = 1", "b = [2]", "c = a")
    result = apply(laboratory, Patch.replace_step(1, "a = 5"))
    assert ("applied", (1, 3), (2,)) == (result.status, result.steps_rerun, result.steps_reused)
    assert ("a", "c") == result.changed
    assert [(4, 0, 1, "executed"), (5, 4, 2, "reused"), (6, 5, 3, "executed")] == [
        (record.number, record.parent, record.origin, record.outcome) for record in laboratory.line()
    ]
    assert {1, 2, 3} <= laboratory.records.keys()
    assert {"a": 5, "b": [2], "c": 5} == laboratory.state.names()


def test_equal_results_cut_the_rest_off() -> None:
    """The plan expects all steps to run; versions decide."""
    laboratory = ran("a = 1", "b = a > 0", "c = [b]", "d = c")
    plan = make_plan(Patch.replace_step(1, "a = 5"), laboratory.line(), laboratory.kept())
    assert 4 == len(plan.rerun)
    result = apply_plan(plan, laboratory)
    assert ((1, 2), (3, 4), (2,)) == (result.steps_rerun, result.steps_reused, result.cut_offs)
    assert 2.0 == result.seconds_saved
    assert ["a = 5", "b = a > 0"] == laboratory.executed


def test_an_alias_that_was_kept_is_not_cut() -> None:
    """`y` stands, though `x` was made again with an equal value: both are one object again."""
    laboratory = ran("x = [1]", "y = x", "z = 1")
    result = apply(laboratory, Patch.replace_step(1, "x = [0 + 1]"))
    assert (1,) == result.steps_rerun
    assert laboratory.state.namespace["x"] is laboratory.state.namespace["y"]


def test_a_new_alias_is_changed_along() -> None:
    """The step that changes `x` in place has to run, and the one that made it: no kept state has its former value."""
    laboratory = ran("z = 0", "x = [1]", "w = 3", "x.append(2)")
    result = apply(laboratory, Patch.replace_step(3, "z = x"))
    assert (2, 3, 4) == result.steps_rerun
    assert [1, 2] == laboratory.state.namespace["z"]


def test_a_failure_leaves_everything_as_it_was() -> None:
    """State, files and head; the result has the failed step."""
    laboratory = ran("a = 1", "write('p', a)", "b = [1, 2][a]")
    before, records = laboratory.state.meaning(), laboratory.line()
    result = apply(laboratory, Patch.replace_step(1, "a = 2"))
    assert ("failed", 3, "IndexError") == (result.status, result.head, result.failure.error.type)
    assert (before, records) == (laboratory.state.meaning(), laboratory.line())


def test_what_was_done_is_kept_aside_on_request() -> None:
    """As a state that a rollback can reach."""
    laboratory = ran("a = 1", "b = [1, 2][a]")
    result = apply(laboratory, Patch.replace_step(1, "a = 2"), ApplyOptions(aside=True))
    assert 2 == laboratory.state.namespace["b"]
    laboratory.rollback(result.aside)
    assert {"a": 2} == laboratory.state.names()


def test_a_step_that_failed_before_may_fail_again() -> None:
    """The history continues after it, as before."""
    laboratory = ran("a = 1", "raise ValueError(a)", "b = a")
    assert "applied" == apply(laboratory, Patch.replace_step(1, "a = 2")).status
    assert {"a": 2, "b": 2} == laboratory.state.names()


def test_equal_external_calls_get_their_recorded_answer() -> None:
    """No call is made."""
    laboratory = ran("a = 1", "b = external(7)\nc = a")
    assert "applied" == apply(laboratory, Patch.replace_step(1, "a = 2")).status
    assert ([7], "e1") == (laboratory.world.effects, laboratory.state.namespace["b"])


def test_other_external_calls_stop_it_before_they_happen() -> None:
    """The result names the calls that would have been made; nothing has happened."""
    laboratory = ran("a = 1", "b = external(a)")
    before = laboratory.state.meaning()
    result = apply(laboratory, Patch.replace_step(1, "a = 2"))
    assert ("blocked", "external", "2") == (result.status, result.blocked.target, result.blocked.arguments)
    assert ([1], before) == (laboratory.world.effects, laboratory.state.meaning())


def test_it_can_be_watched_and_cancelled() -> None:
    """Before each step; then everything is unchanged."""
    laboratory = ran("a = 1", "b = a", "c = b", "d = [4]")
    before = laboratory.state.meaning()
    seen: list[Progress] = []
    options = ApplyOptions(progress=seen.append, cancelled=lambda: len(seen) == 2)
    assert "cancelled" == apply(laboratory, Patch.replace_step(1, "a = 2"), options).status
    assert [(1, 4, 1, True), (2, 4, 2, True)] == [
        (one.position, one.total, one.number, one.rerun) for one in seen
    ]
    assert before == laboratory.state.meaning()


def test_an_interrupt_puts_the_state_back() -> None:
    """Whatever the replay target raises."""
    laboratory = ran("a = 1", "b = a")
    before = laboratory.state.meaning()

    def interrupt(progress: Progress) -> None:
        if progress.position == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(laboratory, Patch.replace_step(1, "a = 2"), ApplyOptions(progress=interrupt))
    assert before == laboratory.state.meaning()


def test_a_plan_is_for_one_head() -> None:
    """A runtime that has run more steps needs another."""
    laboratory = ran("a = 1")
    plan = make_plan(Patch.replace_step(1, "a = 2"), laboratory.line(), laboratory.kept())
    laboratory.execute(None, "b = 1")
    with pytest.raises(StalePlanError, match="after step 1, and step 2 is the head"):
        apply_plan(plan, laboratory)


def test_a_state_that_cannot_be_kept_is_not_put_at_risk() -> None:
    """Unless the caller asks for it; then only the start is left to begin from."""
    laboratory = ran("a = 1", "b = [2]")
    laboratory.keep = lambda: False
    with pytest.raises(StateNotKeptError, match="atomic=False"):
        apply(laboratory, Patch.replace_step(1, "a = 2"))
    result = apply(laboratory, Patch.replace_step(1, "a = 2"), ApplyOptions(atomic=False))
    assert ("applied", {"a": 2, "b": [2]}) == (result.status, laboratory.state.names())


def test_reverting_comes_back_to_the_old_state() -> None:
    """On a third branch."""
    laboratory = ran("a = 1", "b = [2]", "c = a")
    before, line = laboratory.state.meaning(), laboratory.line()
    patch = Patch.replace_step(1, "a = 5")
    apply(laboratory, patch)
    patched = laboratory.line()
    origins = {record.number: record.origin for record in patched}
    result = apply(laboratory, patch.revert(line, patched, lambda number: origins.get(number, number)))
    assert (before, 2) == (laboratory.state.meaning(), len(result.steps_rerun))


def test_a_change_that_no_trace_shows_is_seen() -> None:
    """Versions of the live state are checked before a result is reused."""
    laboratory = ran("x = [1]", "a = 1", "b = len(x)")
    plan = make_plan(Patch.replace_step(2, "a = 2"), laboratory.line(), laboratory.kept())
    assert [2] == [step.number for step in plan.rerun]
    laboratory.state.namespace["x"].append(5)
    apply_plan(plan, laboratory)
    assert 2 == laboratory.state.namespace["b"]


def test_the_first_step_of_all_may_come_from_a_patch() -> None:
    """No step has run before."""
    laboratory = Laboratory()
    assert "applied" == apply(laboratory, Patch.insert_step(0, "a = 1")).status
    assert {"a": 1} == laboratory.state.names()
