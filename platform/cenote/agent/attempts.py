"""Best of n: several attempts at a task from one state, and which of them is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from cenote.agent.response import AgentResponse, BranchOutcome
from cenote.runtime.asynchronous import AsyncPythonRuntime
from cenote.runtime.final_state import FinalState, Score, scored
from cenote.runtime.forking import fork
from cenote.runtime.sync import PythonRuntime
from cenote_security.errors import CenoteError, UsageError

BranchRuntime: TypeAlias = PythonRuntime | AsyncPythonRuntime
"""A runtime that is one of several branches."""


class Branch(Protocol):
    """An agent in a runtime of its own."""

    @property
    def runtime(self) -> BranchRuntime: ...

    async def run(self, task: str) -> AgentResponse: ...


class BranchesFailedError(CenoteError):
    """No branch has come to a score; the agent is as it was. errors: of the branches, in their order."""

    def __init__(self, errors: tuple[Exception, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        found = "; ".join(dict.fromkeys(f"{type(error).__name__}: {error}" for error in self.errors))
        return f"none of {len(self.errors)} branches came to a score: {found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What became of one branch: a response and a score, or an error."""

    response: AgentResponse | None = None
    score: float | None = None
    error: Exception | None = None

    @property
    def outcome(self) -> BranchOutcome:
        """What is recorded of it."""
        return BranchOutcome(
            score=self.score,
            content=self.response.content if self.response else "",
            status=self.response.status if self.response else None,
            steps_taken=self.response.steps_taken if self.response else 0,
            token_usage=self.response.token_usage if self.response else None,
            error=f"{type(self.error).__name__}: {self.error}" if self.error else "",
        )


def best(attempts: Sequence[Attempt]) -> int:
    """The index of the highest score, the first of equals. Raises BranchesFailedError when there is none. Pure."""
    scored = [(attempt.score, -index) for index, attempt in enumerate(attempts) if attempt.score is not None]
    if not scored:
        raise BranchesFailedError(tuple(attempt.error for attempt in attempts if attempt.error is not None))
    return -max(scored)[1]


async def branches_of(runtime: object, n: int, *, partial: bool) -> list[BranchRuntime]:
    """So many copies of a runtime, with the same face. Raises UsageError, and what `fork` raises."""
    if not isinstance(runtime, PythonRuntime | AsyncPythonRuntime):
        raise UsageError(f"an agent branches in a runtime of its own, not {type(runtime).__name__}")
    face: type[BranchRuntime] = type(runtime)
    cores = await asyncio.to_thread(fork, runtime.core, None, n, deterministic=False, partial=partial)
    return [face.holding(core) for core in cores]


async def best_of(branches: Sequence[Branch], task: str, score: Score) -> tuple[int, AgentResponse]:
    """Which branch did best, and its response with all scores; the runtimes of the others are closed.

    Raises BranchesFailedError when none came to a score.
    """
    kept = -1
    try:
        attempts = await asyncio.gather(*(_attempt(branch, task, score) for branch in branches))
        index = best(attempts)
        response = attempts[index].response
        assert response is not None, "what has a score has a response"
        kept = index
    finally:
        for index, branch in enumerate(branches):
            if index != kept:
                await asyncio.to_thread(branch.runtime.core.close)
    outcomes = tuple(attempt.outcome for attempt in attempts)
    return kept, replace(response, score=attempts[kept].score, branches=outcomes)


async def _attempt(branch: Branch, task: str, score: Score) -> Attempt:
    response: AgentResponse | None = None
    try:
        response = await branch.run(task)
        state = FinalState(PythonRuntime.over(branch.runtime.core))
        found = await asyncio.to_thread(scored, score, state)
        if found is None:
            raise UsageError("its score is not a number (NaN), which compares with nothing")
        return Attempt(response=response, score=found)
    except Exception as error:  # noqa: BLE001  (a model's, a runtime's or the verifier's: the other branches go on)
        return Attempt(response=response, error=error)
