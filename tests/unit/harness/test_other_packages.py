"""A patch that runs steps again with other packages than they were recorded with says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.harness.laboratory import Laboratory

from cenote.harness.applying.apply import apply_plan
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan
from cenote_worker.history.events import EnvironmentUsed, packages_of
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord

OLD = EnvironmentUsed(digest="a" * 64, packages=("greeting==1.0",))
NEW = EnvironmentUsed(digest="b" * 64, packages=("greeting==2.0",), after=2)

RAN, AGAIN = "2 steps, step 1 first, ran with", "and would run again with environment"


def test_a_history_says_which_packages_each_step_ran_with() -> None:
    """Only changes are recorded: nothing where jails always have the packages of their process."""
    history = History()
    history.runs_in(EnvironmentUsed())
    assert 0 == history.size
    for number, used in enumerate((OLD, OLD, NEW, NEW, EnvironmentUsed()), start=1):
        history.runs_in(used)
        history.ended(StepRecord(number=number, parent=number - 1, kind="cell"))
    assert [("a" * 64, 0), ("b" * 64, 2), ("", 4)] == [
        (each.digest, each.after) for each in history.environments
    ]
    assert [OLD.digest, OLD.digest, NEW.digest, NEW.digest, ""] == [
        packages_of(number, history.environments).digest for number in range(1, 6)
    ]
    again = History()
    again.read(history.event(position) for position in range(history.size))
    assert history.environments == again.environments


@pytest.mark.parametrize(
    ("environments", "said"),
    [
        ((), ""),
        ((OLD,), ""),
        ((OLD, NEW), f"{RAN} environment {'a' * 12} {AGAIN} {'b' * 12}: results may differ"),
        ((replace(OLD, after=2),), f"{RAN} the packages of the process {AGAIN} {'a' * 12}: results may differ"),
    ],
    ids=["none", "one", "two", "none before"],
)  # fmt: skip
def test_a_plan_and_its_result_say_so_in_one_sentence(
    environments: tuple[EnvironmentUsed, ...], said: str
) -> None:
    laboratory = Laboratory(by_name=True)
    for code in ("a = 1", "b = a", "c = b"):
        laboratory.execute(None, code)
    plan = make_plan(
        Patch.replace_step(1, "a = 5"), laboratory.line(), laboratory.kept(), environments=environments
    )
    assert said == plan.packages
    assert (said in plan.explain()) is True
    result = apply_plan(plan, laboratory)
    assert "applied" == result.status
    assert [said] * bool(said) == [
        note for note in result.notes if "packages" in note or "environment" in note
    ]
