"""The traps: each patch makes a difference that would be missed, and applying it gives what a full run gives."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.soundness.trap import TRAPS, Trap

from cenote.harness import ApplyOptions, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

SAME_EITHER_WAY = {"a silent store into an array", "a silent store into a list", "a seed set to what it was"}
"""A full run gives the same before and after: what must not happen is that an older value comes back."""

AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)

LIBRARIES = (
    "numpy",
    "pandas",
    "matplotlib.pyplot",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.impute",
    "sklearn.linear_model",
    "sklearn.neighbors",
    "sklearn.tree",
)
"""A second of CPU time for each jail that has to import one of these itself. That is what the runtime does which is
patched; with what it is compared there is the same in either case."""


@pytest.fixture(scope="module")
def full() -> Iterator[PythonRuntime]:
    """Runs each patched program from its beginning. Nobody asks it for more than what it prints and has."""
    with PythonRuntime(sandbox=SandboxPolicy(snapshots="none", tracking=False)) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def full_of_libraries() -> Iterator[PythonRuntime]:
    """The same for programs that import some of them."""
    policy = SandboxPolicy(snapshots="none", tracking=False, preload=LIBRARIES)
    with PythonRuntime(sandbox=policy) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def live() -> Iterator[PythonRuntime]:
    """Runs each program as it was, and then the patch is applied."""
    with PythonRuntime() as runtime:
        yield runtime


def _run(runtime: PythonRuntime, cells: tuple[str, ...], look: str) -> tuple[list[str], str | None]:
    runtime.reset()
    printed = [runtime.execute(cell).stdout for cell in cells]
    return printed, runtime.execute(look).value


def test_there_are_enough() -> None:
    """What is published counts on at least so many mechanisms, each with a name of its own."""
    assert len({trap.name for trap in TRAPS}) == len(TRAPS) >= 60


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_an_applied_patch_gives_what_a_full_run_gives(
    trap: Trap, live: PythonRuntime, request: pytest.FixtureRequest
) -> None:
    """Outputs and what is looked at; they depend on the patch, through steps that the patch does not touch."""
    heavy = re.search(
        r"^\s*(?:import|from) (?:matplotlib|scipy|sklearn)\b", "\n".join(trap.patched), re.MULTILINE
    )
    full: PythonRuntime = request.getfixturevalue("full_of_libraries" if heavy else "full")
    check(trap, full, live)


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
