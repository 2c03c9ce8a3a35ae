"""A plan says what will run, what stays and why, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.support.harness.laboratory import Laboratory

from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import PlanGivenUp, make_plan
from cenote.harness.planning.plan import Plan
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.execution.trace import ANYTHING, StepTrace, Version, file, hidden, name
from cenote_worker.history.step import StepRecord


def ran(codes: Sequence[str], keep: Sequence[int] = ()) -> Laboratory:
    laboratory = Laboratory(by_name=True)
    for number, code in enumerate(codes, 1):
        laboratory.execute(None, code)
        if number in keep:
            laboratory.keep()
    return laboratory


def planned(laboratory: Laboratory, patch: Patch) -> Plan:
    return make_plan(patch, laboratory.line(), laboratory.kept())


def numbers(plan: Plan) -> tuple[list[int], list[int], list[int]]:
    kinds = plan.rerun, plan.reused, plan.restored
    return tuple([step.number for step in kind] for kind in kinds)


CHAIN = ["a = 1", "b = [a]", "c = [a, 2]", "show(c)", "d = len(b)"]


def test_only_what_depends_on_the_change_runs() -> None:
    """A patch begins with the present state where that avoids carrying results over."""
    laboratory = ran(CHAIN)
    plan = planned(laboratory, Patch.replace_step(2, "b = [a, a]"))
    assert ([2, 5], [1, 3, 4], []) == numbers(plan)
    assert ("continue", 5) == (plan.strategy, plan.base)
    assert 5 == len(laboratory.executed)


def test_a_plan_that_nobody_waits_for_is_given_up() -> None:
    """At the next step, however long the whole plan would take."""
    laboratory = ran(CHAIN)
    asked: list[int] = []
    patch = Patch.replace_step(1, "a = 2")

    def cancelled() -> bool:
        asked.append(1)
        return True

    with pytest.raises(PlanGivenUp):
        make_plan(patch, laboratory.line(), laboratory.kept(), cancelled=cancelled)
    assert [1] == asked


def test_each_step_has_its_reason() -> None:
    """One sentence each, and `explain` lists them all."""
    plan = planned(ran(CHAIN), Patch.replace_step(2, "b = [a, a]"))
    assert [
        "it comes before the change",
        "the patch replaces its code",
        "nothing that it depends on is different",
        "nothing that it depends on is different",
        "it reads `b`, which is different now",
    ] == [step.reason for step in plan.steps]
    assert "2 steps to run, about 2.0 s, from the present state" == plan.explain().split("\n")[0]


def test_a_new_source_of_a_file_is_different_for_whoever_reads_it() -> None:
    """Also where a separate step is inserted, since the one that wrote the file has other effects as well."""
    made = StepTrace(writes={file("shop.py"): Version("1")})
    read = StepTrace(reads={file("shop.py"): Version("1")}, writes={name("shop"): Version("2")})
    records = [
        StepRecord(number=1, code="open('shop.py', 'w').write(text)", trace=made),
        StepRecord(number=2, parent=1, code="import shop", trace=read),
    ]
    plan = make_plan(Patch.replace_artifact("shop.py", "x = 2\n"), records, (1,))
    assert ([0, 2], [1], []) == numbers(plan)
    assert "it reads the file `shop.py`, which is different now" == plan.steps[-1].reason


def test_a_value_that_was_overwritten_since_needs_an_older_state() -> None:
    """The step reads the former `x`; a kept state has it, and later results are carried over."""
    codes = ["x = [0]", "y = len(x)", "x.append(1)", "z = [5]"]
    patch = Patch.replace_step(2, "y = len(x) + 1")
    plan = planned(ran(codes, keep=[1]), patch)
    assert ("snapshot", 1) == (plan.strategy, plan.base)
    assert ([2], [1, 3, 4], [3, 4]) == numbers(plan)
    assert "start" == planned(ran(codes), patch).strategy


def test_what_shares_objects_is_carried_together() -> None:
    """Two names of one list stay two names of one list."""
    plan = planned(ran(["a = 1", "x = [0]", "y = x", "a = 2"], keep=[1]), Patch.replace_step(4, "a = a + 1"))
    assert "continue" != plan.strategy
    assert {"name:x", "name:y"} in [set(carried.locations) for carried in plan.carried]


def test_a_step_whose_result_cannot_be_carried_runs() -> None:
    """The reason names what cannot be carried."""
    plan = planned(ran(["a = rand()", "s = stream()", "b = rand()"]), Patch.replace_step(3, "b = rand() + 1"))
    assert [
        "the state of random is needed, and no kept state has it as it was then",
        "`s` is needed, and `s` cannot be carried over (a stream cannot be stored)",
        "the patch replaces its code",
    ] == [step.reason for step in plan.rerun]


def test_where_tracking_gives_up_the_rest_runs() -> None:
    """No code is refused; the plan says why."""
    plan = planned(ran(["a = 1", "anything('b = 2')", "c = 3"]), Patch.replace_step(1, "a = 2"))
    assert [
        "the patch replaces its code",
        "it may read or write anything (it runs code that it makes)",
        "step 2 runs before it and may have changed anything",
    ] == [step.reason for step in plan.rerun]


def test_unrepeatable_steps_run_behind_a_change() -> None:
    """Before it they do not run again."""
    codes = ["t = clock()", "raise ValueError(1)", "a = 1", "t = clock()"]
    plan = planned(ran(codes), Patch.replace_step(3, "a = 2"))
    assert [3, 4] == [step.number for step in plan.rerun]


def test_a_step_that_failed_for_what_it_read_stands() -> None:
    """It would fail again. If its error suggests near names, it stands only if the same names exist."""
    codes = ["a = 1", "raise ValueError(2)", "show(nowhere)"]
    assert [1] == [step.number for step in planned(ran(codes), Patch.replace_step(1, "a = 2")).rerun]
    plan = planned(ran(codes), Patch.replace_step(1, "a = 1\nnow_here = 2"))
    assert [1, 3] == [step.number for step in plan.rerun]


def test_a_step_that_failed_for_anything_else_runs() -> None:
    """A resource that was short then may be sufficient now."""
    laboratory = ran(["a = 1", "raise ValueError(2)"])
    records = laboratory.line()
    full = replace(records[1], error=ErrorInfo(type="OSError", message="no space left on device"))
    late = replace(records[1], error=ErrorInfo(type="ValueError", message="", reason="time"))
    for other in (full, late):
        plan = make_plan(Patch.replace_step(1, "a = 2"), [records[0], other], laboratory.kept())
        assert [1, 2] == [step.number for step in plan.rerun]


def test_effects_of_steps_to_run_are_named() -> None:
    """With the function that would be called."""
    plan = planned(ran(["a = 1", "external(a)", "external(5)"]), Patch.replace_step(1, "a = 2"))
    assert [(2, "external")] == [(effect.number, effect.target) for effect in plan.blocked]


def test_a_removed_step_takes_its_result_along() -> None:
    """Its readers run again, even if only to fail."""
    plan = planned(ran(["a = 1", "b = 2", "c = a"]), Patch.remove_step(1))
    assert ([3], [2]) == numbers(plan)[:2]
    assert "it reads `a`, which is different now" == plan.rerun[0].reason


MUTATED = ["x = [0]", "y = len(x)", "x.append(1)", "z = [5]"]


def stored(codes: Sequence[str], at: Mapping[int, int], **trace: object) -> Plan:
    """The plan of a patch of step 2, with only the present state kept. trace: changes to the first step's trace."""
    laboratory = ran(codes)
    first, *others = laboratory.line()
    assert first.trace is not None
    records = [replace(first, trace=replace(first.trace, **trace)), *others]  # type: ignore[arg-type]
    return make_plan(Patch.replace_step(2, "y = len(x) + 1"), records, (), at)


def test_a_stored_state_is_begun_with_where_none_is_kept() -> None:
    """Steps after it run again, since no result can be carried into another process."""
    plan = stored(MUTATED, {0: 0, 1: 0, 3: 0})
    assert ("checkpoint", 1) == (plan.strategy, plan.base)
    assert ([2, 3, 4], [1], []) == numbers(plan)
    assert "from the checkpoint after step 1" in plan.explain()


def test_without_one_all_is_run() -> None:
    plan = stored(MUTATED, {0: 0})
    assert ("start", [1, 2, 3, 4]) == (plan.strategy, numbers(plan)[0])


def test_a_kept_state_that_is_as_new_comes_first() -> None:
    """Results can be carried from there."""
    laboratory = ran(MUTATED, keep=[1])
    patch = Patch.replace_step(2, "y = len(x) + 1")
    plan = make_plan(patch, laboratory.line(), laboratory.kept(), {0: 0, 1: 0})
    assert ("snapshot", 1) == (plan.strategy, plan.base)


def test_behind_a_step_that_may_have_done_anything_none_is_begun_with() -> None:
    """Unless the live state has lost those effects too, since it began with a stored state itself."""
    anything = {"opaque": ("exec",), "writes": {ANYTHING: Version("?")}}
    assert "start" == stored(MUTATED, {0: 0, 1: 0}, **anything).strategy
    assert "checkpoint" == stored(MUTATED, {0: 0, 1: 1}, **anything).strategy


def test_state_that_no_checkpoint_has_is_made_again() -> None:
    traced = {"writes": {name("x"): Version("1"), hidden("sklearn"): Version("2")}}
    assert "start" == stored(MUTATED, {0: 0, 1: 0}, **traced).strategy
