"""What one run of an agent may use, why it ends where it may use no more, and what it has cost so far.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cenote.agent.vocabulary.response import StepUsage, StopReason
from cenote.models.messages import TokenUsage
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds

MAX_ANSWER_TIME: Final = 1800.0
"""Seconds for one answer by default: a slow model on a laptop writes long ones in minutes."""

MAX_ANSWER_LENGTH: Final = 400_000
"""Characters of one answer by default, its reasoning included: 100,000 tokens, which few models can write."""

MAX_REPEATS: Final = 3
"""The same block with the same output so often in a row is a loop that the model does not leave by itself."""


class RunStoppedError(Exception):
    """Ends a run from within. It reaches no caller: the run gives a response with this reason."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one run; None is no limit.

    run_time: seconds. total_tokens, input_tokens, output_tokens: of all model calls together, compaction included.
    answer_time, answer_length: seconds and characters of one answer.
    """

    run_time: float | None = None
    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    answer_time: float | None = MAX_ANSWER_TIME
    answer_length: int | None = MAX_ANSWER_LENGTH

    def __post_init__(self) -> None:
        check_seconds(self.run_time, "max_run_time")
        check_seconds(self.answer_time, "max_answer_time")
        for name in ("total_tokens", "input_tokens", "output_tokens", "answer_length"):
            limit = getattr(self, name)
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
                raise UsageError(
                    f"max_{name} is a number from 1 on, or None for no limit, not {limit!r:.100}"
                )

    @property
    def counts_tokens(self) -> bool:
        return (self.total_tokens, self.input_tokens, self.output_tokens) != (None, None, None)

    def check_call(self, spent: TokenUsage, prompt: int) -> None:
        """Whether a call with so many tokens of prompt may be made. Raises RunStoppedError."""
        within = (
            _covers(self.total_tokens, spent.total + prompt + 1)
            and _covers(self.input_tokens, spent.prompt + prompt)
            and _covers(self.output_tokens, spent.completion + 1)
        )
        if not within:
            raise RunStoppedError(StopReason.BUDGET_EXHAUSTED)

    def room(self, spent: TokenUsage, prompt: int) -> int | None:
        """Tokens that the answer to such a prompt may have; None for no limit."""
        left = []
        if self.total_tokens is not None:
            left.append(self.total_tokens - spent.total - prompt)
        if self.output_tokens is not None:
            left.append(self.output_tokens - spent.completion)
        return max(min(left), 0) if left else None


class AnswerMeter:
    """Counts an answer while it is written. room: tokens that it may have, length: characters; None is no limit."""

    def __init__(self, count: Callable[[str], int], room: int | None, length: int | None) -> None:
        self._count = count
        self._room = room
        self._length = length
        self._parts: list[str] = []
        self._characters = self._bytes = 0
        self._counted_at = room or 0

    def add(self, piece: str) -> None:
        """A further piece, of text or of reasoning."""
        self._characters += len(piece)
        if self._room is not None:
            self._parts.append(piece)
            self._bytes += len(piece.encode("utf-8", "replace"))

    @property
    def is_too_long(self) -> bool:
        """Whether it has more characters than an answer may have."""
        return self._length is not None and self._characters > self._length

    @property
    def is_unaffordable(self) -> bool:
        """Whether it has more tokens than are left. No token is shorter than a byte, so counting can wait."""
        if self._room is None or self._bytes <= self._counted_at:
            return False
        left = self._room - self._count("".join(self._parts))
        self._counted_at = self._bytes + max(left, 0)
        return left < 0


def _covers(limit: int | None, needed: int) -> bool:
    return limit is None or needed <= limit


MAX_ERROR: Final = 2000
"""Characters of what is kept of why a block failed."""


class RunLedger:
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
