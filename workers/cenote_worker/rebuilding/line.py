"""The steps that led to a state. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_worker.history.step import StepRecord


@dataclass(frozen=True, slots=True)
class Line:
    """begun: names that were there before the first step. steps: from the first one of the history to the last."""

    begun: tuple[str, ...]
    steps: tuple[StepRecord, ...]

    def behind(self, earlier: Line) -> Line:
        """The same line, with the beginning of another one where that has more of it."""
        for index, record in enumerate(self.steps):
            if record.kind == "unrecorded":
                known = earlier.until(record.number)
                if known is not None:
                    return Line(known.begun, (*known.steps, *self.steps[index + 1 :]))
        if earlier.steps[:1] and self.until(earlier.steps[0].number) is not None:
            return Line(earlier.begun, self.steps)
        return self

    def until(self, number: int) -> Line | None:
        """The line to this step; None if it is not on it."""
        for index, record in enumerate(self.steps):
            if record.number == number:
                return Line(self.begun, self.steps[: index + 1])
        return None
