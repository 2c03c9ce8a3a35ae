"""The second half of the demonstration: a patch runs again only what it breaks, and a crash is survived."""

from __future__ import annotations

import time

from cenote.demo import workbook
from cenote.demo.team import load_raw
from cenote.harness import Patch
from cenote.runtime import PythonRuntime, Variable
from cenote.terminal.screen import BOLD, DIM, Screen


def show_mending(screen: Screen) -> bool:
    """Runs an analysis in a jail of its own, patches it, has it crash, and prints what is left. True when all is."""
    screen.line()
    screen.line("An analysis in steps, one of which was wrong", BOLD)
    with load_raw() as raw, PythonRuntime(variables=[Variable("raw", raw)]) as runtime:
        for code in workbook.CELLS:
            result = runtime.execute(code)
            _show(screen, f"step {result.step}", result.stdout)
        return _patch(runtime, screen) and _crash(runtime, screen)


def _patch(runtime: PythonRuntime, screen: Screen) -> bool:
    """Changes a function that one of the steps defines."""
    state = runtime.state
    before = sum(step.duration for step in state.steps)
    screen.line(f"--- a patch of `{workbook.PATCHED}`: {workbook.REASON}", BOLD)
    plan = state.plan(Patch.replace_function(workbook.PATCHED, workbook.PATCH, reason=workbook.REASON))
    screen.line(plan.explain(), DIM)
    started = time.perf_counter()
    result = state.apply(plan)
    seconds = time.perf_counter() - started
    for record in result.records:
        if record.outcome == "executed":
            _show(screen, f"step {record.origin} anew", record.stdout)
    screen.line(
        f"{result.status}: {len(result.steps_rerun)} of {len(workbook.CELLS)} steps ran again, in {seconds:.2f} s; "
        f"all of them had taken {before:.2f} s. Changed: {', '.join(result.changed)}"
    )
    return result.status == "applied"


def _crash(runtime: PythonRuntime, screen: Screen) -> bool:
    """A step destroys what is there, and then its process."""
    screen.line("--- a crash", BOLD)
    screen.line(workbook.CRASH, DIM)
    crashed = runtime.execute(workbook.CRASH)
    screen.line(f"the step: {crashed.error}; the state: {crashed.state.replace('_', ' ')}")
    after = runtime.execute(workbook.AFTER)
    _show(screen, "still there", after.stdout)
    return after.success


def _show(screen: Screen, what: str, text: str) -> None:
    if text.strip():
        screen.line(f"{what}: {text.strip()}")
