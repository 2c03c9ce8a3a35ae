"""What a run has cost so far, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cenote.agent.response import StepUsage
from cenote.models.usage import TokenUsage

MAX_ERROR: Final = 2000
"""Characters of what is kept of why a block failed."""


class Ledger:
    """Books usage and time on the step that is under way. A step begins with `open_step`.

    run: a name for the run that no other has; may be empty.
    """

    def __init__(self, run: str = "") -> None:
        self.steps: tuple[StepUsage, ...] = ()
        self._run = run

    @property
    def cause(self) -> str:
        """What names the model call of this step in a runtime's history; empty in a run without a name."""
        return self.steps[-1].cause

    @property
    def total(self) -> TokenUsage:
        return sum((step.usage for step in self.steps), TokenUsage())

    @property
    def code_snippets(self) -> tuple[str, ...]:
        return tuple(step.code for step in self.steps if step.code is not None)

    def open_step(self) -> None:
        number = len(self.steps) + 1
        self.steps += (StepUsage(number=number, cause=f"{self._run}.{number}" if self._run else ""),)

    def book_call(self, usage: TokenUsage, seconds: float) -> None:
        step = self.steps[-1]
        self._change(replace(step, usage=step.usage + usage, model_seconds=step.model_seconds + seconds))

    def book_code(self, code: str) -> None:
        self._change(replace(self.steps[-1], code=code))

    def book_patch(self, patch: str) -> None:
        self._change(replace(self.steps[-1], patch=patch))

    def book_error(self, error: str) -> None:
        self._change(replace(self.steps[-1], error=error[:MAX_ERROR]))

    def book_cell(self, seconds: float) -> None:
        self._change(replace(self.steps[-1], cell_seconds=self.steps[-1].cell_seconds + seconds))

    def _change(self, step: StepUsage) -> None:
        self.steps = (*self.steps[:-1], step)
