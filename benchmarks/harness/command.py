"""The command: random histories and patches, compared step by step with a full run of the patched history."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.harness.laboratory import Laboratory
from tests.harness.programs import patch, program

from cenote.harness.apply import ApplyOptions, apply_plan
from cenote.harness.plan_forecast import make_plan
from cenote.harness.plan_line import LineStep
from cenote_worker.history.step import StepRecord
from cenote_worker.trace import StepTrace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=1000, help="random histories, each with one patch")


def run(arguments: argparse.Namespace) -> None:
    total = Counter[str]()
    for seed in range(arguments.cases):
        total += _one(random.Random(seed))
    behind = total["run again"] + total["reused"]
    print(f"{total['cases']} patches applied, {total['stopped']} stopped before an effect outside")
    print(f"steps behind the change: {behind}, run again: {total['run again']}, planned: {total['planned']}")
    print(f"truly affected: {total['affected']}, ratio {total['run again'] / max(total['affected'], 1):.2f}")


def _one(chance: random.Random) -> Counter[str]:
    """Counts of one case. All states are kept, so that nothing is run only because its result is gone."""
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
        return Counter({"stopped": 1})
    affected = _affected(plan.course.line, {record.number: record for record in records})
    behind = plan.course.line[plan.course.fork :]
    reused = set(result.steps_reused) & {step.number for step in behind}
    counts = {"run again": len(behind) - len(reused), "reused": len(reused), "planned": len(plan.rerun)}
    return Counter({**counts, "cases": 1, "affected": affected})


def _affected(line: Sequence[LineStep], records: Mapping[int, StepRecord]) -> int:
    """Steps that are new or changed, or that find, leave or print something else than they did."""
    full = Laboratory(by_name=True)
    full.answers_only = True
    affected = 0
    for step, new in zip(line, full.run_line(line), strict=True):
        old = records.get(step.number)
        same = old is not None and not step.change and _told(old) == _told(new)
        affected += not same
    return affected


def _told(record: StepRecord) -> tuple[object, ...]:
    trace = record.trace or StepTrace()
    return record.stdout, str(record.error), dict(trace.reads), dict(trace.writes)
