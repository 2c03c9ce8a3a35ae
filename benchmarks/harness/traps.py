"""The test suite's traps on Cenote, judged as on the rivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.soundness.trap import Trap

from benchmarks.harness.outcome import Outcome, Played
from cenote.harness import ApplyOptions, Patch
from cenote.runtime import PythonRuntime
from cenote_security.errors import CenoteError

SYSTEM = "cenote"
ASKED = "cells run in order; the step patched, `plan` and `apply`; what they run"
AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)


def play(traps: Sequence[Trap], progress: Callable[[str, Outcome], None]) -> Played:
    """Two runtimes: one runs each patched program in full, the other applies the patch."""
    outcomes = []
    with PythonRuntime() as full, PythonRuntime() as live:
        for trap in traps:
            outcomes.append(_one(trap, full, live))
            progress(SYSTEM, outcomes[-1])
    return Played(system=SYSTEM, asked=ASKED, outcomes=outcomes)


def _one(trap: Trap, full: PythonRuntime, live: PythonRuntime) -> Outcome:
    wanted = _run(full, trap.patched, trap.look)
    _run(live, trap.cells, trap.look)
    state = live.state
    looking = state.steps[-1].number
    patch = Patch.replace_step(state.steps[trap.step - 1].number, trap.code)
    try:
        result = state.apply(state.plan(patch), AS_A_NOTEBOOK)
    except CenoteError as error:
        return Outcome(trap=trap.name, verdict="broke", note=str(error))
    if result.status != "applied":
        return Outcome(trap=trap.name, verdict="refused", note=result.status)
    reran = [number for number in result.steps_rerun if number != looking]
    found = live.execute(trap.look).value or ""
    return Outcome.judged(trap.name, wanted, found, len(reran))


def _run(runtime: PythonRuntime, cells: Sequence[str], look: str) -> str:
    runtime.reset()
    for cell in cells:
        runtime.execute(cell)
    return runtime.execute(look).value or ""
