"""Random histories and patches, each compared with a full run of the patched history."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.harness.laboratory import Laboratory
from tests.support.harness.programs import patch, program

from cenote.harness.applying.apply import ApplyOptions, apply_plan
from cenote.harness.patching.patched_history import LineStep
from cenote.harness.planning.forecast import make_plan
from cenote_worker.execution.trace import StepTrace
from cenote_worker.history.step import StepRecord


@dataclass(frozen=True, kw_only=True)
class Case:
    """One random history and patch. All states are kept, so that no step is run only because its result is missing.

    stopped: before an external effect; the other fields are then meaningless. sound: names, files, random state and
    outputs equal those of a full run. behind: number of steps from the change on. affected: those of them that are
    new or changed, or that read, leave or print something different.
    """

    stopped: bool = False
    sound: bool = True
    behind: int = 0
    planned: int = 0
    rerun: int = 0
    affected: int = 0


def measure(seeds: Iterable[int]) -> list[Case]:
    return [_one(random.Random(seed)) for seed in seeds]


def _one(chance: random.Random) -> Case:
    codes = program(chance.randrange)
    laboratory = Laboratory(by_name=True)
    for code in codes:
        laboratory.execute(None, code)
        laboratory.keep()
    change = patch(chance.randrange, codes)
    records = laboratory.line()
    plan = make_plan(change, records, laboratory.kept())
    laboratory.answers_only = True
    result = apply_plan(plan, laboratory, ApplyOptions(stop_on_failure=False))
    if result.status != "applied":
        return Case(stopped=True)
    full = Laboratory(by_name=True)
    full.answers_only = True
    wanted = full.run_line(plan.course.line)
    behind = plan.course.line[plan.course.fork :]
    reused = set(result.steps_reused) & {step.number for step in behind}
    outputs = [(new.stdout, str(new.error)) for new in wanted]
    return Case(
        sound=full.state.meaning() == laboratory.state.meaning()
        and outputs == [(new.stdout, str(new.error)) for new in laboratory.line()],
        behind=len(behind),
        planned=len(plan.rerun),
        rerun=len(behind) - len(reused),
        affected=_affected(plan.course.line, {record.number: record for record in records}, wanted),
    )


def _affected(
    line: Sequence[LineStep], records: Mapping[int, StepRecord], wanted: Sequence[StepRecord]
) -> int:
    affected = 0
    for step, new in zip(line, wanted, strict=True):
        old = records.get(step.number)
        same = old is not None and not step.change and _told(old) == _told(new)
        affected += not same
    return affected


def _told(record: StepRecord) -> tuple[object, ...]:
    trace = record.trace or StepTrace()
    return record.stdout, str(record.error), dict(trace.reads), dict(trace.writes)
