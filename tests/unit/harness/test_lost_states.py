"""Kept states may disappear at any time: a remaining one is used, or the error says which is missing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from tests.support.harness.laboratory import Laboratory
from tests.support.harness.programs import patch, program
from tests.support.harness.values import Stream

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, apply_plan
from cenote.harness.patching.errors import NotPutBackError, NoWayError
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan
from cenote_worker.history.step import StepRecord


class ShortOfMemory(Laboratory):
    """Drops kept states while steps run."""

    lose: Callable[[], None] = staticmethod(lambda: None)

    def execute(self, record: StepRecord | None, code: str, *, tentative: bool = False) -> StepRecord:
        self.lose()
        return super().execute(record, code, tentative=tentative)


def ran(codes: Sequence[str], keep: Callable[[int], bool]) -> ShortOfMemory:
    laboratory = ShortOfMemory(by_name=True)
    for number, code in enumerate(codes, 1):
        laboratory.execute(None, code)
        if keep(number):
            laboratory.keep()
    return laboratory


def applied(seed: int) -> str:
    """Applies one random patch while states get lost, and returns the outcome; an applied one equals a full run."""
    choose = random.Random(seed).randrange
    codes = program(choose)
    laboratory = ran(codes, lambda _: bool(choose(2)))
    change, records, before = patch(choose, codes), laboratory.line(), laboratory.state.meaning()
    plan = make_plan(change, records, laboratory.kept())

    def lose() -> None:
        if laboratory.states and not choose(3):
            del laboratory.states[sorted(laboratory.states)[choose(len(laboratory.states))]]

    laboratory.lose, laboratory.answers_only = lose, True
    try:
        result = apply_plan(plan, laboratory, ApplyOptions(stop_on_failure=False))
    except NotPutBackError:
        return "not put back"
    except NoWayError:
        result = ApplyResult(status="failed", head=plan.head)
    if result.status != "applied":
        assert before == laboratory.state.meaning()
        return result.status
    full = Laboratory(tracks=False)
    full.answers_only = True
    full.run_line(change.applied(records))
    assert full.state.meaning() == laboratory.state.meaning()
    return "applied"


@pytest.mark.slow
def test_whatever_gets_lost_the_state_is_that_of_a_full_run_or_the_one_before() -> None:
    """Or the error says that it is neither."""
    ends = Counter(map(applied, range(100)))
    assert ends["applied"] > 60


CODES = ["x = [0]", "y = len(x)", "x.append(1)", "z = y + 1"]


def test_the_newest_kept_state_before_the_change_is_begun_from() -> None:
    """A newer state existed when the plan was made."""
    laboratory = ran(CODES, lambda number: number == 1)
    plan = make_plan(Patch.replace_step(2, "y = len(x) + 5"), laboratory.line(), laboratory.kept())
    assert 1 == plan.base
    del laboratory.states[1]
    assert "applied" == apply_plan(plan, laboratory).status
    assert {"x": [0, 1], "y": 6, "z": 7} == laboratory.state.names()


def test_without_any_state_from_before_the_change_nothing_runs() -> None:
    """A patch that needs only the present state is applied; otherwise the error says what is missing."""
    laboratory = ran(CODES, lambda _: False)
    laboratory.states.clear()
    with pytest.raises(NoWayError, match="reset"):
        make_plan(Patch.replace_step(2, "y = len(x) + 5"), laboratory.line(), laboratory.kept())
    plan = make_plan(Patch.insert_step(4, "z = y + 2"), laboratory.line(), laboratory.kept())
    assert ("applied", 3) == (apply_plan(plan, laboratory).status, laboratory.state.names()["z"])


def test_what_was_there_before_all_steps_is_made_by_no_new_step() -> None:
    """A step that a patch inserts has no number yet; no step made the state before the first one."""
    laboratory = Laboratory(by_name=True)
    laboratory.state.namespace["given"] = Stream()
    for code in ("a = 1", "b = take(given) + a"):
        laboratory.execute(None, code)
    laboratory.states.clear()
    with pytest.raises(NoWayError):
        make_plan(Patch.insert_step(1, "a = 5"), laboratory.line(), laboratory.kept())


def test_states_that_are_gone_since_the_plan_are_missed_before_anything_runs() -> None:
    """The state is unchanged."""
    laboratory = ran(CODES, lambda _: False)
    plan = make_plan(Patch.replace_step(2, "y = len(x) + 5"), laboratory.line(), laboratory.kept())
    before = laboratory.state.meaning()
    laboratory.states.clear()
    with pytest.raises(NoWayError):
        apply_plan(plan, laboratory)
    assert (before, CODES) == (laboratory.state.meaning(), laboratory.executed)


def test_a_state_that_cannot_be_put_back_is_named() -> None:
    """The present state is then the nearest one before it."""
    laboratory = ran(["a = 1", "b = a", "c = b + 1"], lambda number: number == 1)
    plan = make_plan(Patch.replace_step(2, "b = 'text'"), laboratory.line(), laboratory.kept())

    def lose() -> None:
        laboratory.states.pop(3, None)

    laboratory.lose = lose
    with pytest.raises(NotPutBackError, match="after step 3 was given up"):
        apply_plan(plan, laboratory)
    assert {"a": 1} == laboratory.state.names()
