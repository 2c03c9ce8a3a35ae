"""The same property with real processes, forked states, files and the real tracker."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from tests.support.harness import programs
from tests.support.harness.forked import Forked, Process, pristine
from tests.support.harness.values import canonical

from cenote.harness.applying.apply import ApplyOptions, ApplyResult, apply_plan
from cenote.harness.patching.patch import Patch
from cenote.harness.planning.forecast import make_plan
from cenote_worker.history.step import StepRecord

PRELUDE = f"""{programs.PRELUDE}
import os, random
def show(value):
    print(type(value).__name__, len(value) if hasattr(value, '__len__') else value)
def write(path, value):
    with open(path, 'w') as file:
        file.write(str(value) if isinstance(value, int) else 'object')
def read(path):
    with open(path) as file:
        return file.read()
"""

OF_THE_LABORATORY = ("take", "anything", "external", "pure", "clock", "stream", "remove")


def statement(choose: programs.Choose) -> str:
    if not choose(12):
        return "print(sorted(os.listdir('.')))"
    while any(word in (text := programs.statement(choose)) for word in OF_THE_LABORATORY):
        pass
    return text.replace("rand()", "random.randrange(9)").replace("seed(", "random.seed(")


def step(choose: programs.Choose) -> str:
    return "\n".join(statement(choose) for _ in range(1 + choose(3)))


def patch(choose: programs.Choose, codes: Sequence[str | programs.Upload]) -> Patch:
    number = 1 + choose(len(codes))
    code = codes[number - 1]
    if isinstance(code, programs.Upload):
        return programs.patch_of_upload(choose, number)
    return [
        Patch.insert_step(number, step(choose)),
        Patch.remove_step(number),
        Patch.replace_step(number, step(choose)),
        Patch.replace_step(number, f"{code}\n{statement(choose)}"),
        Patch.replace_step(number, code.replace(str(choose(3)), str(choose(3)))),
    ][choose(5)]


def meaning(names: dict[str, object]) -> object:
    return canonical(names, lambda _: 0)


def shown(record: StepRecord) -> tuple[object, ...]:
    """Addresses differ from process to process."""
    return record.code, record.status, re.sub("0x[0-9a-f]+", "", record.stdout), str(record.error)


def check(origin: Process, choose: programs.Choose) -> ApplyResult:
    ground, full = Forked(origin), Forked(origin)
    try:
        steps = programs.with_uploads(choose, [PRELUDE, *(step(choose) for _ in range(2 + choose(6)))])
        for code in steps:
            if isinstance(code, programs.Upload):
                ground.upload(code.path, code.text.encode())
            else:
                ground.execute(None, code)
            if choose(2):
                ground.keep()
        plan = make_plan(patch(choose, steps), ground.line(), ground.kept())
        result = apply_plan(plan, ground, ApplyOptions(stop_on_failure=False))
        full.contents = ground.contents
        wanted = [full.execute(one.origin, one.code) for one in plan.course.line]
        assert full.meaning() == ground.meaning()
        assert list(map(shown, wanted)) == list(map(shown, ground.line()))
        return result
    finally:
        ground.close()
        full.close()


@pytest.mark.slow
def test_patched_histories_equal_their_full_runs_under_the_real_tracker() -> None:
    """Each case is reproduced by its number."""
    with pristine(meaning) as origin:
        for seed in range(30):
            check(origin, random.Random(seed).randrange)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_patched_histories_equal_their_full_runs_under_the_real_tracker() -> None:
    """As above."""
    with pristine(meaning) as origin:
        for seed in range(1000, 6000):
            check(origin, random.Random(seed).randrange)
