"""The traps: each patch makes a difference that is easy to miss, and applying it gives the result of a full run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from tests.support.soundness.trap import TRAPS, Trap

from cenote.harness import ApplyOptions, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

SAME_EITHER_WAY = {"a silent store into an array", "a silent store into a list", "a seed set to what it was"}
"""A full run gives the same before and after: an older value must not reappear."""

AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)

LIBRARIES = (
    "numpy",
    "pandas",
    "duckdb",
    "matplotlib.pyplot",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.impute",
    "sklearn.linear_model",
    "sklearn.neighbors",
    "sklearn.tree",
)
"""Seconds of CPU time for each jail that has to import one of these itself. For each of them, the first trap that
names it does so; for the others it is preloaded, as numpy and pandas are.
"""

USUAL = SandboxPolicy().preload

Begin = Callable[..., PythonRuntime]


@pytest.fixture(scope="module")
def begin() -> Iterator[Begin]:
    """Makes a runtime of a policy with these settings; equal settings give the same one."""
    with ExitStack() as opened:
        yield cache(lambda **policy: opened.enter_context(PythonRuntime(sandbox=SandboxPolicy(**policy))))


def _imported(trap: Trap) -> set[str]:
    """What it imports beyond Python's own library."""
    program = "\n".join((*trap.cells, trap.code, trap.look))
    return set(re.findall(r"(?m)(?:^|;)\s*(?:import|from) (\w+)", program)) - sys.stdlib_module_names


HEAVY = {name.partition(".")[0] for name in LIBRARIES} - {*USUAL}


def _first_of(library: str) -> str:
    return next((trap.name for trap in TRAPS if library in _imported(trap)), "")


THEMSELVES = {_first_of(library) for library in HEAVY}
"""Traps whose cells import a library that is not preloaded, in the runtime that is patched."""


def _preload(trap: Trap) -> tuple[str, ...]:
    """Where a program imports no library, each copy of its process costs a sixth less without them."""
    imported = _imported(trap)
    return LIBRARIES if imported & HEAVY else USUAL if imported else ()


def live(trap: Trap, begin: Begin) -> PythonRuntime:
    """Runs the original program; the patch is applied to it."""
    return begin(preload=USUAL if trap.name in THEMSELVES else _preload(trap))


def full(trap: Trap, begin: Begin) -> PythonRuntime:
    """Runs the patched program from its beginning. Only its output and its final state are looked at."""
    return begin(preload=_preload(trap), snapshots="none", tracking=False)


def _run(runtime: PythonRuntime, cells: tuple[str, ...], look: str) -> tuple[list[str], str | None]:
    runtime.reset()
    printed = [runtime.execute(cell).stdout for cell in cells]
    return printed, runtime.execute(look).value


def test_there_are_enough() -> None:
    """The published figure counts at least this many mechanisms, each with a unique name."""
    assert len({trap.name for trap in TRAPS}) == len(TRAPS) >= 60


@pytest.mark.sweep
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_an_applied_patch_gives_what_a_full_run_gives(trap: Trap, begin: Begin) -> None:
    """Outputs and the observed values; they depend on the patch, through steps that the patch does not touch."""
    check(trap, full(trap, begin), live(trap, begin))


def check(trap: Trap, full: PythonRuntime, live: PythonRuntime) -> None:
    before = _run(live, trap.cells, trap.look)
    wanted = _run(full, trap.patched, trap.look)
    assert (trap.name in SAME_EITHER_WAY) == (before == wanted)

    state = live.state
    patch = Patch.replace_step(state.steps[trap.step - 1].number, trap.code)
    result = state.apply(state.plan(patch), AS_A_NOTEBOOK)

    *steps, look = state.steps
    assert ("applied", *wanted) == (result.status, [step.stdout for step in steps], look.value)
    assert wanted[1] == live.execute(trap.look).value
