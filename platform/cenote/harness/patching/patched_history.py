"""A history as it would be with a patch: the steps of the new branch, each with what it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cenote_worker.history.step import StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class LineStep:
    """One step of a history. origin: the recorded step that it stands for, None for a new one.

    change: what the patch does to it, in words; empty when it is as it was recorded.
    """

    code: str
    origin: StepRecord | None = None
    change: str = ""

    @property
    def number(self) -> int:
        """Of the step that it stands for; 0 for a new one."""
        return self.origin.number if self.origin else 0


def recorded_line(records: Sequence[StepRecord]) -> tuple[LineStep, ...]:
    """The line as it is."""
    return tuple(LineStep(code=record.code, origin=record) for record in records)


def shared_steps(records: Sequence[StepRecord], line: Sequence[LineStep]) -> int:
    """How many steps from the start both histories have in common."""
    for index, (record, step) in enumerate(zip(records, line, strict=False)):
        if step.change or step.origin is not record:
            return index
    return min(len(records), len(line))
