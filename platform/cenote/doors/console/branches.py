"""Pages of states: the tree of a runtime's states and branches, two states side by side, forks and merges."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from starlette.responses import Response

from cenote.doors.console.graph import BoxLine, ShownBox
from cenote.doors.console.layered_layout import Drawing, layered
from cenote.doors.console.runtimes import variables_of
from cenote.doors.console.session import (
    PageRoute,
    Visit,
    address,
    page_number,
    redirect,
    value_address,
)
from cenote.doors.open_runtimes import Door, OpenRuntime
from cenote.harness.questions.execution_state import ExecutionState
from cenote.harness.questions.provenance import LiveVariable, StateDiff
from cenote.harness.record.history_index import location_of
from cenote.harness.record.step import Step
from cenote.runtime.core.merging import MergeForecast, OnConflict, forecast_merge
from cenote.runtime.inject.injectables import MAX_NAME
from cenote_security.errors import UsageError
from cenote_security.printable import printable
from cenote_worker.execution.results import SnapshotInfo
from cenote_worker.execution.trace import kind_of
from cenote_worker.history.step import START

MOST_RUNS: Final = 60
"""Parts of the tree that a page draws: the latest."""

MOST_DIFFERENCES: Final = 150
MOST_STEPS: Final = 50
"""Of each side of a page that compares two states."""

MOST_SHOWN: Final = 2_000
"""Characters of one output of a step there."""

_CHOICES: Final[Mapping[str, OnConflict]] = {each: each for each in get_args(OnConflict)}

_TAKE: Final = "take:"
"""What a form's fields for chosen variables begin with."""

_WIDTH, _LINE, _PADDING = 220.0, 18.0, 8.0


@dataclass(frozen=True, slots=True)
class StepRun:
    """Steps that follow each other without a fork. parent: the last step of the run before, 0 for the start."""

    parent: int
    steps: tuple[int, ...]

    @property
    def last(self) -> int:
        return self.steps[-1]


@dataclass(frozen=True, slots=True)
class RuntimeBranch:
    """A runtime that was forked from the state after a step of this one."""

    name: str
    step: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One variable, file or other location in two states; None where a state does not have it.

    change: `added`, `removed` or `changed`, from the left to the right.
    """

    symbol: str
    change: str
    left: LiveVariable | None
    right: LiveVariable | None


@dataclass(frozen=True, slots=True)
class MergeRow:
    """A variable or a file that a merge would bring. conflict: both sides have changed it. ours, theirs: what is
    known of the variable on each side. choosable: whether the variable can be merged by itself: the branch has it,
    under a name that code can write.
    """

    name: str
    conflict: bool
    ours: LiveVariable | None
    theirs: LiveVariable | None
    choosable: bool


def merge_rows(
    forecast: MergeForecast, ours: Mapping[str, LiveVariable], theirs: Mapping[str, LiveVariable]
) -> list[MergeRow]:
    """Conflicts first. ours, theirs: the variables of each side. Pure."""
    names = dict.fromkeys((*forecast.conflicts, *forecast.names))
    return [
        MergeRow(
            name,
            name in forecast.conflicts,
            ours.get(name),
            theirs.get(name),
            name in forecast.names and name in theirs and name.isidentifier() and len(name) <= MAX_NAME,
        )
        for name in names
    ]


def runs(steps: Sequence[Step], ends: Collection[int] = ()) -> list[StepRun]:
    """The tree of all steps as runs, in the order in which these began. ends: steps that a run ends with. Pure."""
    children = Counter(step.parent for step in steps)
    found: dict[int, list[int]] = {}
    """By the last step so far."""
    parents: dict[int, int] = {}
    """By the first step."""
    for step in steps:
        run = found.pop(step.parent, []) if children[step.parent] == 1 and step.parent not in ends else []
        if not run:
            parents[step.number] = step.parent
        run.append(step.number)
        found[step.number] = run
    begun = {run[0]: run for run in found.values()}
    return [StepRun(parent, tuple(begun[first])) for first, parent in parents.items()]


def differences(
    found: StateDiff, left: Iterable[LiveVariable], right: Iterable[LiveVariable]
) -> list[Difference]:
    """left, right: what is known of the variables of both states. Pure."""
    here, there = ({one.name: one for one in side} for side in (left, right))
    changes = [
        *((symbol, "changed") for symbol in found.changed),
        *((symbol, "added") for symbol in found.added),
        *((symbol, "removed") for symbol in found.removed),
    ]
    return [
        Difference(
            symbol,
            change,
            here.get(symbol, LiveVariable(name=symbol)) if change != "added" else None,
            there.get(symbol, LiveVariable(name=symbol)) if change != "removed" else None,
        )
        for symbol, change in sorted(changes)
    ]


def drawn_tree(
    name: str,
    found: Sequence[StepRun],
    line: frozenset[int],
    head: int,
    snapshots: Sequence[SnapshotInfo],
    branches: Sequence[RuntimeBranch],
) -> tuple[Drawing[tuple[str, int]], list[ShownBox]]:
    """line: the steps that lead to the head. Pure."""
    run_of = {step: run.last for run in found for step in run.steps}
    lines: dict[tuple[str, int], tuple[str, tuple[BoxLine, ...]]] = {}
    edges: list[tuple[tuple[str, int], tuple[str, int], str]] = []
    if any(run.parent == START for run in found) or head == START:
        lines["run", START] = "head" if head == START else "", (_line("the start", ""),)
    for run in found:
        kept = [one for one in snapshots if run_of.get(one.step) == run.last]
        here = run_of.get(head) == run.last
        title = f"steps {run.steps[0]} to {run.last}" if len(run.steps) > 1 else f"step {run.last}"
        about = [
            _line(f"{title} ({len(run.steps)})" if len(run.steps) > 2 else title, address(name, run.last))
        ]
        about += [_line(f"now: after step {head}", address(name, head))] if here else []
        about += [
            _line(f"kept {one.step}{f': {one.label}' if one.label else ''}", address(name, one.step))
            for one in kept[-3:]
        ]
        state = "head" if here else "" if run.last in line else "left"
        lines["run", run.last] = state, tuple(about)
        if ("run", run.parent) in lines:
            edges.append((("run", run.parent), ("run", run.last), "data"))
    for index, branch in enumerate(branches):
        source = ("run", run_of.get(branch.step, START))
        about = [_line(branch.name, address(branch.name)), _line(f"forked after step {branch.step}", "")]
        lines["branch", index] = "", tuple(about)
        if source in lines:
            edges.append((source, ("branch", index), "fork"))
    sizes = {key: (_WIDTH, _PADDING + _LINE * len(box[1])) for key, box in lines.items()}
    drawing = layered(sizes, edges)
    boxes = [
        ShownBox("values" if key[0] == "branch" else "step", state, drawing.boxes[key], text)
        for key, (state, text) in lines.items()
    ]
    return drawing, boxes


def _line(text: str, url: str) -> BoxLine:
    whole = printable(text[:200])
    return BoxLine(whole if len(whole) <= 28 else f"{whole[:27]}…", whole, url)


async def _branches(visit: Visit) -> Response:
    seen = await visit.door.get(visit.name)
    state = await seen.state()
    snapshots: Sequence[SnapshotInfo] = ()
    origin: RuntimeBranch | None = None
    forked: Sequence[RuntimeBranch] = ()
    if isinstance(seen, OpenRuntime) and isinstance(visit.door, Door):
        origin, forked = await _relatives(visit.door, visit.name, seen)
        if (await seen.owner.status()).step is None:
            snapshots = await seen.owner.snapshots()
    everything = runs(state.history, {state.head, *(branch.step for branch in forked[:MOST_RUNS])})
    line = frozenset(step.number for step in state.line(state.head))
    drawing, boxes = drawn_tree(
        visit.name, everything[-MOST_RUNS:], line, state.head, snapshots, forked[:MOST_RUNS]
    )
    return visit.page(
        "branches",
        title=f"{visit.name}, branches",
        name=visit.name,
        head=state.head,
        drawing=drawing,
        boxes=boxes,
        omitted=max(0, len(everything) - MOST_RUNS),
        snapshots=snapshots,
        origin=origin,
        branches=forked,
    )


async def _relatives(
    door: Door, name: str, runtime: OpenRuntime
) -> tuple[RuntimeBranch | None, list[RuntimeBranch]]:
    """Where it was forked from, and what was forked from it. A platform says so; else what this process has."""
    listed = {one.name: one.info for one in await door.listed()}
    own = listed.get(name)
    origin = RuntimeBranch(own.parent, own.parent_step) if own is not None and own.parent else None
    found = [
        RuntimeBranch(other, info.parent_step)
        for other, info in listed.items()
        if info is not None and info.parent == name
    ]
    if own is None:
        here = await _history_of(runtime)
        mine = runtime.owner.core.origin
        for other in door.names:
            there = await door.get(other)
            point = there.owner.core.origin
            if point is not None and point.history == here:
                found.append(RuntimeBranch(other, point.step))
            if mine is not None and mine.history == await _history_of(there):
                origin = RuntimeBranch(other, mine.step)
    return origin, sorted(found, key=lambda branch: (branch.step, branch.name))


async def _history_of(runtime: OpenRuntime) -> str:
    """The id of its history."""
    return (await asyncio.to_thread(runtime.owner.core.read_history)).id


async def _diff(visit: Visit) -> Response:
    """Two states side by side, of one runtime or of it and another one."""
    query = visit.request.query_params
    other_name = query.get("with", "").strip() or visit.name
    state = await _described(visit, visit.name)
    other = state if other_name == visit.name else await _described(visit, other_name)
    a, b = page_number(query.get("a", "")), page_number(query.get("b", ""))
    return await asyncio.to_thread(
        _compared,
        visit,
        other_name,
        (state, state.head if a is None else a),
        (other, other.head if b is None else b),
    )


async def _described(visit: Visit, name: str) -> ExecutionState:
    """The record, with a description of what the namespace holds now, if no cell uses it."""
    seen = await visit.door.get(name)
    if isinstance(seen, OpenRuntime) and (await seen.owner.status()).step is None:
        await variables_of(seen)
    return await seen.state()


def _compared(
    visit: Visit, other_name: str, left: tuple[ExecutionState, int], right: tuple[ExecutionState, int]
) -> Response:
    (state, a), (other, b) = left, right
    found = state.diff(a, b, None if other is state else other)
    rows = differences(found, state.at(a).variables, other.at(b).variables)
    kinds = [kind_of(location_of(row.symbol)) for row in rows]
    variables = [row for row, kind in zip(rows, kinds, strict=True) if kind == "name"]
    files = [row for row, kind in zip(rows, kinds, strict=True) if kind == "file"]
    others = [row for row, kind in zip(rows, kinds, strict=True) if kind not in ("name", "file")]
    return visit.page(
        "diff",
        title=f"{visit.name}, step {a}, and {other_name}, step {b}",
        name=visit.name,
        other=other_name,
        found=found,
        tables=[
            (title, each[:MOST_DIFFERENCES], max(0, len(each) - MOST_DIFFERENCES))
            for title, each in (("Variables", variables), ("Files", files), ("Other state", others))
            if each
        ],
        sides=[
            (visit.name, a, found.left[-MOST_STEPS:], max(0, len(found.left) - MOST_STEPS)),
            (other_name, b, found.right[-MOST_STEPS:], max(0, len(found.right) - MOST_STEPS)),
        ],
        shown=MOST_SHOWN,
        value_address=value_address,
    )


async def _fork(visit: Visit) -> Response:
    form = await visit.form()
    await visit.runtime()
    assert isinstance(visit.door, Door)
    branch = form.get("branch", "").strip()
    await visit.door.fork(visit.name, branch, page_number(form.get("step", "")))
    return redirect(address(branch))


async def _merge(visit: Visit) -> Response:
    """What a merge would bring, and which conflicts it has; or carries it out, where the form says so."""
    if visit.request.method == "GET":
        return await _merge_page(visit, visit.request.query_params.get("branch", ""))
    form = await visit.form()
    choice = _CHOICES.get(form.get("on_conflict", ""))
    if choice is None:
        raise UsageError("choose what becomes of conflicts")
    return await _merge_page(visit, form.get("branch", ""), form.get("heads"), None, choice)


async def _merge_names(visit: Visit) -> Response:
    """Takes over the chosen variables, and nothing else."""
    form = await visit.form()
    names = [field.removeprefix(_TAKE) for field in form if field.startswith(_TAKE)]
    if not names:
        raise UsageError("choose at least one variable to take over")
    return await _merge_page(visit, form.get("branch", ""), form.get("heads"), names, "theirs")


async def _merge_page(
    visit: Visit,
    name: str,
    shown: str | None = None,
    names: Sequence[str] | None = None,
    choice: OnConflict = "refuse",
) -> Response:
    """shown: the states that the form was made for; None for a look. names, choice: of a merge."""
    runtime = await visit.runtime()
    assert isinstance(visit.door, Door)
    branch = await visit.door.get(name)
    forecast = await asyncio.to_thread(forecast_merge, runtime.owner.core, branch.owner.core)
    heads = ",".join(map(str, forecast.heads))
    result = None
    if shown == heads:
        result = await runtime.owner.merge(branch.owner, names, on_conflict=choice)
    state, other = await asyncio.gather(runtime.state(), branch.state())
    ours, theirs = (
        {one.name: one for one in moment.variables}
        for moment in await asyncio.gather(
            asyncio.to_thread(state.at, forecast.heads[0]), asyncio.to_thread(other.at, forecast.heads[1])
        )
    )
    rows = merge_rows(forecast, ours, theirs)
    return visit.page(
        "merge",
        title=f"{visit.name}, a merge of {name}",
        name=visit.name,
        branch=name,
        forecast=forecast,
        heads=heads,
        stale=shown is not None and result is None,
        result=result,
        rows=rows[:MOST_DIFFERENCES],
        omitted=max(0, len(rows) - MOST_DIFFERENCES),
        most=MOST_DIFFERENCES,
        take=_TAKE,
    )


ROUTES: Final[tuple[PageRoute, ...]] = (
    ("GET", "/runtimes/{runtime}/branches", _branches),
    ("GET", "/runtimes/{runtime}/diff", _diff),
    ("POST", "/runtimes/{runtime}/fork", _fork),
    ("GET", "/runtimes/{runtime}/merge", _merge),
    ("POST", "/runtimes/{runtime}/merge", _merge),
    ("POST", "/runtimes/{runtime}/merge/names", _merge_names),
)
