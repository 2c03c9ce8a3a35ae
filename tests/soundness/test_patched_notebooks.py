"""Notebooks of the corpus under patches: every output, value and file equals that of a full run."""

from __future__ import annotations

import pytest
from tests.soundness.notebooks.notebook import NAMES, Edit, Notebook, load

from cenote.demo.agents import read_csv_bytes
from cenote.harness import ApplyOptions, Patch
from cenote.harness.applying.auditor import same_text
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)

UNWATCHED = SandboxPolicy(snapshots="none", tracking=False)
"""Policy of the full run of a patched notebook: only its outputs and its final state are looked at."""

MEANING = """
def _meaning():
    from hashlib import md5
    def told(value):
        if hasattr(value, "to_csv"):
            return f"{type(value)} {value.to_csv()}"
        if hasattr(value, "tobytes") and value.dtype.kind != "O":
            return f"{value.dtype} {value.shape} {md5(value.tobytes()).hexdigest()}"
        return repr(value)
    values = {name: value for name, value in globals().items() if not name.startswith("_")}
    return sorted((name, told(value)) for name, value in values.items() if not callable(value))
_meaning()
"""
"""A cell that prints the whole namespace."""

FEW = ("penguin_survey", "zen_statistics")
"""The lightest ones; all of them with --long."""


def _check(notebook: Notebook, edit: Edit) -> None:
    with PythonRuntime(sandbox=UNWATCHED) as full, PythonRuntime() as live:
        for runtime in (full, live):
            runtime.files.write("penguins-raw.csv", read_csv_bytes())
        wanted = [full.execute(cell) for cell in notebook.edited(edit)]
        steps = [live.execute(cell).step for cell in notebook.cells]
        state = live.state
        plan = state.plan(Patch.replace_step(steps[edit.step - 1], notebook.edited(edit)[edit.step - 1]))
        result = state.apply(plan, AS_A_NOTEBOOK)
        assert "applied" == result.status
        assert [(each.stdout, each.value) for each in wanted] == [
            (step.stdout, step.value) for step in state.steps
        ]
        assert same_text(full.execute(MEANING).value or "", live.execute(MEANING).value or "-")
        assert _files(full) == _files(live)


def _files(runtime: PythonRuntime) -> dict[bytes, bytes]:
    return {info.raw: runtime.files.read(info.raw) for info in runtime.files.list().entries}


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_a_patched_notebook_is_that_of_a_full_run(name: str) -> None:
    """Checks the last patch of each."""
    notebook = load(name)
    _check(notebook, notebook.edits[-1])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_all_patched_notebooks_are_those_of_full_runs(name: str) -> None:
    """Checks all patches of all."""
    notebook = load(name)
    for edit in notebook.edits:
        _check(notebook, edit)
