"""Lines on their way to whoever makes them, and back: steps by number, and the code of those that are different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cenote.harness.plan_line import LineStep
from cenote_security.errors import UsageError
from cenote_worker.history.tree import StepTree
from cenote_worker.results import PatchedStep


def told_step(step: LineStep) -> PatchedStep:
    return PatchedStep(origin=step.number, change=step.change, code=step.code if step.change else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldLine:
    """The line is this one: a change of any line that has the steps that it names, or of which the tree has them.

    What was taken out of the line is brought back by its step.
    """

    steps: tuple[PatchedStep, ...]
    tree: StepTree

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        known = {step.number: step for step in line}
        return tuple(self._made(step, known.get(step.origin) or self._former(step)) for step in self.steps)

    def _former(self, step: PatchedStep) -> LineStep | None:
        """Of a step that is brought back."""
        if not step.origin:
            return None
        if step.origin not in self.tree or not step.change:
            raise UsageError(f"the line has no step {step.origin}")
        return LineStep(code="", origin=self.tree.get(step.origin))

    def _made(self, step: PatchedStep, stands_for: LineStep | None) -> LineStep:
        if not step.change:
            if stands_for is None:
                raise UsageError("a new step has code, and a word about it")
            return stands_for
        origin = stands_for.origin if stands_for is not None else None
        return LineStep(code=step.code, origin=origin, change=step.change)
