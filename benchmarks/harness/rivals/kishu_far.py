"""Kishu: checks out the state before the patched cell, then runs that cell and all later ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from kishu.jupyterint import KishuForJupyter
from kishu.notebook_id import NotebookId

from benchmarks.harness.rivals.far_end import Case, serve
from benchmarks.harness.rivals.shell import full_run, look_in

EMPTY_NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def patched(case: Case) -> tuple[str, str, int]:
    """The notebook is next to the folder that cells work in, and is removed with it."""
    notebook = Path.cwd().with_suffix(".ipynb")
    notebook.write_text(json.dumps(EMPTY_NOTEBOOK))
    shell = InteractiveShell.instance()
    kishu = KishuForJupyter(NotebookId("trap", notebook, "none"), ip=shell)
    kishu.install_kishu_hooks()
    commits = []
    for cell in ("pass", *case.cells):
        shell.run_cell(cell, store_history=True)
        commits.append(kishu._kishu_branch.get_head().commit_id)
    before = look_in(shell, case.look)
    kishu.checkout(commits[case.step - 1], skip_notebook=True)
    again = case.patched[case.step - 1 :]
    for cell in again:
        shell.run_cell(cell, store_history=True)
    return before, look_in(shell, case.look), len(again)


if __name__ == "__main__":
    os.environ["ENV_KISHU_TEST_MODE"] = "1"
    serve(full_run, patched, int(sys.argv[1]))
