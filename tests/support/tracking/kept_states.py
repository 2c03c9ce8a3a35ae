"""Lines of steps in this process, each with the state that would be stored after it: a copy, or bindings."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from dataclasses import dataclass

from tests.soundness.tracking.test_soundness import seen
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import StepTrace, kind_of
from cenote_worker.jail.snapshots.deltas.bindings import BindingsBaseline, bring_about, difference
from cenote_worker.process.memory_unsafe import head_of


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The state after some cells. bindings: make it from the state after the first `cells`; None for a copy."""

    cells: int
    bindings: bytes | None


class Line:
    """Cells, and for each the state that a worker's warden would have stored after it."""

    def __init__(self, in_process: Callable[[], Steps]) -> None:
        self._in_process = in_process
        self.steps = in_process()
        self.cells: list[str] = []
        self.traces: list[StepTrace] = []
        self.kept: list[Kept] = []
        self._base = BindingsBaseline.of(self.steps.namespace)
        self._copied = 0

    def run(self, source: str) -> StepTrace:
        trace = self.steps.run(source)
        self.traces.append(trace)
        self.cells.append(source)
        bound, bindings = self.steps.bound_only, None
        if bound is not None and self._base is not None:
            bindings = difference(self._base, self.steps.namespace, bound)
        if bindings is None:
            self._base, self._copied = BindingsBaseline.of(self.steps.namespace), len(self.cells)
        self.kept.append(Kept(cells=self._copied, bindings=bindings))
        return trace

    def unclear(self) -> list[object]:
        """For each cell, why it may have done more than bind names, as far as its trace says so."""
        places = [{*trace.reads, *trace.writes} for trace in self.traces]
        others = [sorted(each for each in found if kind_of(each) != "name") for found in places]
        known = [(trace.opaque, trace.unrepeatable, trace.modules) for trace in self.traces]
        return [*zip(known, others, strict=True), builtins.__import__]

    def back_at(self, number: int) -> Steps:
        """A process that continues after that many cells."""
        kept, steps = self.kept[number - 1], self._in_process()
        for source in self.cells[: kept.cells]:
            steps.run(source)
        if kept.bindings is not None:
            steps.tracker.forget(bring_about(steps.namespace, kept.bindings))
        return steps


def state(steps: Steps) -> object:
    """Names in their order, all their values together, which of them share an object, and the layout of sets."""
    names = {key: value for key, value in steps.namespace.items() if key[:2] != "__"}
    first: dict[int, str] = {}
    same = {key: first.setdefault(id(value), key) for key, value in names.items()}
    values = {key: value for key, value in names.items() if not isinstance(value, types.ModuleType)}
    sets = {key: value for key, value in names.items() if isinstance(value, set)}
    lying = {key: (list(value), head_of(value)._replace(address=0)) for key, value in sets.items()}
    return list(names), same, seen(values, {}), lying
