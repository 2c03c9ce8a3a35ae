"""FlowBook: its kernel, driven by its own session for scripts. A cell is edited; then stale cells are run.

A cell that FlowBook rejects for violating its rules counts as a refusal, in the original program and in the patched
one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import flowbook
from flowbook.mcp.session import NotebookSession
from jupyter_client.kernelspec import KernelSpecManager

from benchmarks.harness.rivals.far_end import Case, RefusedError, serve
from benchmarks.harness.rivals.shell import full_run

KERNEL = "flowbook_kernel"
LOOK = "print(repr({look}))"
LIMIT = 20.0


def patched(case: Case) -> tuple[str, str, int]:
    """The look is the last cell of the notebook, and its output must also equal that of a full run."""
    path = Path.cwd() / "trap.ipynb"
    path.write_text(json.dumps(_notebook([*case.cells, LOOK.format(look=case.look)])))
    with closing(NotebookSession()) as session:
        *cells, look = session.load(str(path))["cell_ids"]
        path.unlink()
        for cell in (*cells, look):
            _run(session, cell)
        before = _printed(session, look)
        session.edit_cell(cells[case.step - 1], case.code)
        ran = _until_clean(session, len(cells) * 3)
        return before, _printed(session, look), len([cell for cell in ran if cell != look])


def _notebook(cells: list[str]) -> dict[str, object]:
    told: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "id": f"c{n}",
            "source": cell,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for n, cell in enumerate(cells)
    ]
    return {"cells": told, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def _run(session: NotebookSession, cell: str) -> None:
    session.run_cell(cell, timeout=LIMIT)
    errors = session.cell_flowbook_meta.get(cell, {}).get("errors", [])
    if errors:
        raise RefusedError(", ".join(sorted({str(error.get("error_type")) for error in errors})))


def _until_clean(session: NotebookSession, most: int) -> list[str]:
    """Runs stale cells in FlowBook's order and returns them; a cell that fails is not repeated without end."""
    failed: set[str] = set()
    ran: list[str] = []
    while len(ran) < most:
        target = session.get_next_run_target()
        if target is None or target in failed:
            return ran
        ran.append(target)
        _run(session, target)
        if session.cell_status.get(target) == "error":
            failed.add(target)
    raise RuntimeError(f"it is not clean after {most} cells")


def _printed(session: NotebookSession, cell: str) -> str:
    outputs = session._find_cell(cell)[1]["outputs"]
    return "".join(part.get("text", "") for part in outputs if part.get("name") == "stdout").strip()


def _install(folder: str) -> None:
    """Does what FlowBook does when JupyterLab starts."""
    os.environ["JUPYTER_DATA_DIR"] = folder
    spec = Path(flowbook.__file__).parent / "kernel" / "kernelspec"
    KernelSpecManager().install_kernel_spec(str(spec), KERNEL, user=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as data:
        _install(data)
        serve(full_run, patched, int(sys.argv[1]))
