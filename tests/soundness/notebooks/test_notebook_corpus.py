"""The corpus itself: real notebooks with reproducible results, and patches that apply."""

from __future__ import annotations

import pytest
from tests.soundness.notebooks.notebook import NAMES, load

from cenote.demo.agents import read_csv_bytes
from cenote.runtime import PythonRuntime


def _printed(name: str) -> list[str]:
    with PythonRuntime() as runtime:
        runtime.files.write("penguins-raw.csv", read_csv_bytes())
        results = [runtime.execute(cell) for cell in load(name).cells]
    assert [None] * len(results) == [result.error for result in results]
    return [result.stdout for result in results]


def test_there_are_ten_with_five_patches_each() -> None:
    """Published statements about the corpus assume about this number."""
    assert len(NAMES) >= 10
    assert {5} == {len(load(name).edits) for name in NAMES}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_alike_in_any_runtime(name: str) -> None:
    """A notebook that differs between runs could not distinguish a wrong re-execution from a right one."""
    first = _printed(name)

    assert first == _printed(name)
    assert any(first)


@pytest.mark.parametrize("name", NAMES)
def test_each_patch_has_one_place(name: str) -> None:
    """A patch that matches nowhere, or twice, is a mistake in the corpus."""
    notebook = load(name)

    assert [1] * 5 == [notebook.cells[edit.step - 1].count(edit.find) for edit in notebook.edits]
    assert all(notebook.edited(edit) != notebook.cells for edit in notebook.edits)
