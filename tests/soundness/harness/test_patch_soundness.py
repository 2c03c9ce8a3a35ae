"""The basic property: after a patch is applied, everything equals a full run of the patched history."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.harness.laboratory import Laboratory
from tests.support.harness.programs import Choose, Upload, patch, program, with_uploads

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, apply_plan
from cenote.harness.patching.errors import NoWayError
from cenote.harness.planning.forecast import make_plan
from cenote.harness.planning.plan import Plan

ON = ApplyOptions(stop_on_failure=False)


def shown(record: object) -> tuple[object, ...]:
    return record.code, record.status, record.stdout, str(record.error)


def ran(choose: Choose, steps: Sequence[str | Upload]) -> Laboratory:
    """A laboratory that ran the steps, with some of its states kept."""
    laboratory = Laboratory(by_name=bool(choose(2)))
    for step in steps:
        if isinstance(step, Upload):
            laboratory.upload(step.path, step.text, kept=step.kept)
        else:
            laboratory.execute(None, step)
        if choose(2):
            laboratory.keep()
    return laboratory


def applied(plan: Plan, laboratory: Laboratory) -> ApplyResult:
    try:
        return apply_plan(plan, laboratory, ON)
    except NoWayError:
        return ApplyResult(status="failed", head=plan.head)


def check(choose: Choose) -> ApplyResult:
    """One random program and patch: applied, and run in full. Refused only if the content of a file is missing."""
    steps = with_uploads(choose, program(choose))
    laboratory = ran(choose, steps)
    change = patch(choose, steps)
    records = laboratory.line()
    before = laboratory.state.meaning()
    all_kept = all(step.kept for step in steps if isinstance(step, Upload))
    try:
        plan = make_plan(change, records, laboratory.kept())
    except NoWayError:
        assert not all_kept
        return ApplyResult(status="failed", head=laboratory.head())
    plan.explain()
    laboratory.answers_only = True
    effects = list(laboratory.world.effects)
    result = applied(plan, laboratory)
    assert effects == laboratory.world.effects
    assert result.status in ("applied", "blocked") or not all_kept
    if result.status != "applied":
        assert before == laboratory.state.meaning()
        return result
    full = Laboratory(tracks=False)
    full.answers_only, full.uploaded = True, dict(laboratory.uploaded)
    wanted = full.run_line(change.applied(records))
    assert full.state.meaning() == laboratory.state.meaning()
    assert list(map(shown, wanted)) == list(map(shown, laboratory.line()))
    return result


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_patched_history_equals_its_full_run(data: st.DataObject) -> None:
    """Namespace with all its sharing, files, random state and outputs; no external effect is repeated."""
    check(lambda below: data.draw(st.integers(0, below - 1)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_four_hundred_patched_histories_equal_their_full_runs(part: int) -> None:
    """The same by a seeded generator, which is faster: each case is reproduced by its number."""
    for seed in range(part, 400, 4):
        check(random.Random(seed).randrange)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_patched_histories_equal_their_full_runs() -> None:
    """Other numbers than those above."""
    for seed in range(10_000, 110_000):
        check(random.Random(seed).randrange)
