"""The basic property of slices: their program, run by itself, gives the value of the full history."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.harness.laboratory import Laboratory, State
from tests.support.harness.programs import Choose, program, statement
from tests.support.harness.values import canonical

from cenote.harness import ExecutionState, Slice
from cenote_worker.execution.trace import ABSENT, ValueKind, key_of, kind_of
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord


def with_kinds(record: StepRecord, state: State) -> StepRecord:
    """Adds the kinds of values that a jail would report."""
    assert record.trace is not None
    written = [each for each, version in record.trace.writes.items() if version != ABSENT]
    kinds = {
        each: ValueKind(type=type(state.namespace[key_of(each)]).__name__)
        for each in written
        if kind_of(each) == "name" and key_of(each) in state.namespace
    }
    return replace(record, trace=replace(record.trace, kinds=kinds))


def ran(codes: list[str]) -> tuple[Laboratory, ExecutionState]:
    laboratory, history = Laboratory(), History()
    for code in codes:
        history.ended(with_kinds(laboratory.execute(None, code), laboratory.state))
    return laboratory, ExecutionState(lambda: history)


def meaning(laboratory: Laboratory, name: str) -> str:
    return canonical({name: laboratory.state.namespace[name]}, lambda stream: stream.at)


def run_again(found: Slice, state: ExecutionState) -> Laboratory:
    """Step by step, since a failed step has a part too; with the recorded answers."""
    fresh = Laboratory()
    for number, parts in groupby(found.statements, lambda each: each.step):
        fresh.execute(state.step(number).record, "\n".join(each.text for each in parts))
    return fresh


def check(choose: Choose) -> tuple[int, int]:
    """Some names of one random program. Counts all statements, and those in slices."""
    codes = program(choose)
    codes += ["\n".join(statement(choose) for _ in range(2 + choose(5))) for _ in range(2)]
    laboratory, state = ran(codes)
    known = {each.name for each in state.at(state.head).variables}
    total = sliced = 0
    for name in sorted(known)[choose(3) :: 3]:
        if name in laboratory.state.names():
            found = state.slice(name)
            again = run_again(found, state)
            assert meaning(laboratory, name) == meaning(again, name), (name, codes, found.source)
            total += sum(step.code.count("\n") + 1 for step in found.steps)
            sliced += found.source.count("\n")
    return total, sliced


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_program_of_a_slice_gives_the_value_again(source: random.Random) -> None:
    """Whichever names are aliased, captured, rebound or changed in place."""
    check(lambda bound: source.randrange(bound))
