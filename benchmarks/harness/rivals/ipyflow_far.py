"""ipyflow: cells are run in order, then reactive mode is turned on, the cell edited and executed."""

from __future__ import annotations

import sys

from ipyflow.flow import NotebookFlow
from ipyflow.shell.interactiveshell import IPyflowInteractiveShell

from benchmarks.harness.rivals.far_end import Case, serve
from benchmarks.harness.rivals.ipyflow_front import Schedule
from benchmarks.harness.rivals.shell import full_run, look_in

MOST_ROUNDS = 30
"""Most rounds of asking for newly ready cells; the extension asks after each batch."""


class Notebook:
    """The front end's side of a notebook."""

    def __init__(self, cells: list[str]) -> None:
        self.shell = IPyflowInteractiveShell.instance()
        self._flow = NotebookFlow.instance()
        self._sources = {f"cell{number}": cell for number, cell in enumerate(cells, 1)}
        self._dirty: set[str] = set()
        self.runs = 0
        self._flow.initialize(interface="jupyterlab", cell_metadata_by_id=self._metadata())
        for cell in self._sources:
            self._run(cell)
            self._schedule(reactively=False)

    def _metadata(self) -> dict[str, dict[str, object]]:
        return {
            cell: {"index": index, "content": source, "type": "code"}
            for index, (cell, source) in enumerate(self._sources.items())
        }

    def _run(self, cell: str) -> None:
        self.runs += 1
        self._dirty.discard(cell)
        self._flow.set_active_cell(cell)
        self.shell.run_cell(self._sources[cell], store_history=True, cell_id=cell)

    def _schedule(self, *, reactively: bool) -> Schedule:
        request = {
            "type": "compute_exec_schedule",
            "cell_metadata_by_id": self._metadata(),
            "is_reactively_executing": reactively,
        }
        answer = self._flow.comm_manager.handle_compute_exec_schedule(request)
        if not answer.get("success", True):
            raise RuntimeError(answer.get("error"))
        return Schedule(answer, self._dirty)

    def edit_and_execute(self, number: int, code: str) -> None:
        cell = f"cell{number}"
        self.shell.run_line_magic("flow", "mode reactive")
        self._sources[cell] = code
        self._dirty.add(cell)
        schedule = self._schedule(reactively=False)
        self.runs, done = 0, set[str]()
        batch = schedule.closure([cell])
        for _ in range(MOST_ROUNDS):
            if not batch:
                return
            for one in [known for known in self._sources if known in batch]:
                self._run(one)
            done |= batch
            schedule = self._schedule(reactively=True)
            batch = schedule.closure(schedule.new - done) - done


def patched(case: Case) -> tuple[str, str, int]:
    notebook = Notebook(case.cells)
    before = look_in(notebook.shell, case.look)
    notebook.edit_and_execute(case.step, case.code)
    return before, look_in(notebook.shell, case.look), notebook.runs


if __name__ == "__main__":
    serve(full_run, patched, int(sys.argv[1]))
