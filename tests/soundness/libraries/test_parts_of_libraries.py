"""Steps that use a part of a package depend on its import, whichever step that was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote.harness import ApplyOptions, ApplyResult, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

CELLS = ("import xml.dom", "import xml", "there = xml.dom.__name__", "import xml.dom as again")


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        for cell in CELLS:
            assert runtime.execute(cell).success
        yield runtime


def patched(runtime: PythonRuntime, step: int, code: str) -> ApplyResult:
    state = runtime.state
    return state.apply(state.plan(Patch.replace_step(step, code)), ApplyOptions(stop_on_failure=False))


def test_who_speaks_of_a_part_depends_on_its_import(runtime: PythonRuntime) -> None:
    """And a later step that imports it as well runs again: it is now the first import."""
    assert (1, 3, 4) == patched(runtime, 1, "import xml").steps_rerun
    assert ["ok", "ok", "failed", "ok"] == [step.status for step in runtime.state.steps]


def test_who_imports_the_same_as_before_has_nothing_else_run_again(runtime: PythonRuntime) -> None:
    """Though the part is imported already, and cannot be removed."""
    assert (1,) == patched(runtime, 1, "import xml.dom  # as before").steps_rerun
