"""Line numbers in the output of steps are right after a patch, though no value contains them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from cenote.harness import ApplyOptions, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

TOLD = {
    "a failure": ("def f(x):\n    return 1 / x", "f(0)"),
    "a warning": ("import warnings\ndef f(x):\n    warnings.warn('much')", "f(0)"),
    "a traceback that was caught": (
        "import traceback\ndef f(x):\n    return 1 / x",
        "try:\n    f(0)\nexcept ZeroDivisionError:\n    traceback.print_exc()",
    ),
}


@pytest.fixture
def runtimes() -> Iterator[tuple[PythonRuntime, PythonRuntime]]:
    with (
        PythonRuntime() as live,
        PythonRuntime(sandbox=SandboxPolicy(snapshots="none", tracking=False)) as full,
    ):
        yield live, full


def told(stderr: str, error: object) -> str:
    """A step's number is independent of its code."""
    return re.sub(r"cell \d+", "cell", f"{stderr}{error or ''}")


@pytest.mark.parametrize("cells", TOLD.values(), ids=TOLD.keys())
def test_lines_are_those_of_the_patched_code(
    cells: tuple[str, str], runtimes: tuple[PythonRuntime, PythonRuntime]
) -> None:
    """A comment moves a function, and changes nothing else."""
    live, full = runtimes
    moved = f"# what it is for\n\n{cells[0]}"
    for cell in cells:
        live.execute(cell)
    full.execute(moved)
    wanted = full.execute(cells[1])
    state = live.state
    state.apply(state.plan(Patch.replace_step(1, moved)), ApplyOptions(stop_on_failure=False))
    found = state.steps[-1]
    assert told(wanted.stderr, wanted.error) == told(found.stderr, found.error)


def test_who_told_of_no_line_does_not_run_again(runtimes: tuple[PythonRuntime, PythonRuntime]) -> None:
    """A comment reruns only its own step."""
    live, _ = runtimes
    for cell in ("def f(x):\n    return x + 1", "y = f(1)"):
        live.execute(cell)
    state = live.state
    result = state.apply(state.plan(Patch.replace_step(1, "# adds one\ndef f(x):\n    return x + 1")))
    assert (1,) == result.steps_rerun
