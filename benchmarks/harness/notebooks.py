"""The test suite's notebooks under patches: what is rerun, compared with what is affected and with all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.soundness.notebooks.notebook import NAMES, Edit, Notebook, load

from benchmarks.state.cpu import timed
from cenote.demo.agents import read_csv_bytes
from cenote.harness import ApplyOptions, ApplyResult, Patch
from cenote.harness.applying.auditor import same_text
from cenote.harness.live_state import RuntimeState
from cenote.harness.record.step import Step
from cenote.runtime import PythonRuntime
from cenote_security.errors import CenoteError
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.execution.trace import Location, StepTrace, Version

AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)
DATA = "penguins-raw.csv"
UNIQUE = "?"
"""A version with this prefix equals no other version."""


@dataclass(frozen=True, kw_only=True)
class Patched:
    """One patch of one notebook.

    steps, behind: number in the notebook, and from the changed one on. rerun: steps that were run. affected: of the
    steps from the changed one on, those that find, leave or print something else in a full run. seconds, saved: what
    all steps took when they were recorded, and what those took that did not run. full_cpu, apply_cpu: CPU seconds of
    a full run, and of planning and applying. status: `applied`, else why not; the state is as it was then. sound:
    every output is that of the full run.
    """

    notebook: str
    reason: str
    steps: int
    behind: int
    rerun: int
    affected: int
    seconds: float
    saved: float
    full_cpu: float
    apply_cpu: float
    status: str
    sound: bool

    @property
    def applied(self) -> bool:
        return self.status == "applied"


def measure(edits: int, progress: Callable[[Patched], None]) -> list[Patched]:
    """Number of patches of each notebook."""
    found = []
    for notebook, edit in _chosen(edits):
        found.append(_one(notebook, edit))
        progress(found[-1])
    return found


def _chosen(edits: int) -> Iterator[tuple[Notebook, Edit]]:
    for name in NAMES:
        notebook = load(name)
        yield from ((notebook, edit) for edit in notebook.edits[:edits])


def _one(notebook: Notebook, edit: Edit) -> Patched:
    with PythonRuntime() as full, PythonRuntime() as live:
        wanted, _, full_cpu = timed(lambda: run_cells(full, notebook.edited(edit)))
        run_cells(live, notebook.cells)
        before = live.state.steps
        patch = Patch.replace_step(before[edit.step - 1].number, notebook.edited(edit)[edit.step - 1])
        result, _, apply_cpu = timed(lambda: _apply(live.state, patch))
        after = live.state.steps
        again = {step.number for step in before} if isinstance(result, str) else set(result.steps_rerun)
        return Patched(
            notebook=notebook.name,
            reason=edit.reason,
            steps=len(before),
            behind=len(before) - edit.step + 1,
            rerun=len(again),
            affected=1 + sum(map(differ, before[edit.step :], full.state.steps[edit.step :])),
            seconds=sum(step.duration for step in before),
            saved=sum((step.duration for step in before if step.number not in again), 0.0),
            full_cpu=full_cpu,
            apply_cpu=apply_cpu,
            status=result if isinstance(result, str) else result.status,
            sound=all(map(_same, wanted, after)),
        )


def _apply(state: RuntimeState[PythonRuntime], patch: Patch) -> ApplyResult | str:
    """The reason when it could not be applied."""
    try:
        return state.apply(state.plan(patch), AS_A_NOTEBOOK)
    except CenoteError as error:
        return f"{type(error).__name__}: {error}"


def run_cells(runtime: PythonRuntime, cells: Sequence[str]) -> list[ExecutionResult]:
    """All results of a notebook, and the data that it reads."""
    runtime.files.write(DATA, read_csv_bytes())
    return [runtime.execute(cell) for cell in cells]


def differ(one: Step, other: Step) -> bool:
    """Whether a step reads, leaves or shows something different in another run; incomparable values are ignored."""
    mine, others = one.record.trace or StepTrace(), other.record.trace or StepTrace()
    shown = (one.stdout, one.value or "") != (other.stdout, other.value or "")
    return shown or _unlike(mine.reads, others.reads) or _unlike(mine.writes, others.writes)


def _unlike(one: Mapping[Location, Version], other: Mapping[Location, Version]) -> bool:
    both = one.keys() & other.keys()
    return any(
        one[place] != other[place]
        and not one[place].startswith(UNIQUE)
        and not other[place].startswith(UNIQUE)
        for place in both
    )


def _same(wanted: ExecutionResult, step: Step) -> bool:
    return wanted.stdout == step.stdout and same_text(wanted.value or "", step.value or "")
