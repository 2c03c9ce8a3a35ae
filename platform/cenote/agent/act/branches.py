"""Best of n: several attempts at a task from one state, the tokens that they share, and which of them is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from cenote.agent.vocabulary.response import AgentResponse, BranchOutcome
from cenote.models import Message, Model, ModelError, ModelTurn
from cenote.models.base import ModelLimits, ReasoningModel, closing, reasoned
from cenote.models.messages import ReasonedChunk
from cenote.runtime.core.derived import fork
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.faces.final_state import FinalState, Score, scored
from cenote.runtime.faces.sync import PythonRuntime
from cenote_security.errors import CenoteError, UsageError
from cenote_security.verdict import limit

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
class BranchAttempt:
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


def best(attempts: Sequence[BranchAttempt]) -> int:
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


async def _attempt(branch: Branch, task: str, score: Score) -> BranchAttempt:
    response: AgentResponse | None = None
    try:
        response = await branch.run(task)
        state = FinalState(PythonRuntime.over(branch.runtime.core))
        found = await asyncio.to_thread(scored, score, state)
        if found is None:
            raise UsageError("its score is not a number (NaN), which compares with nothing")
        return BranchAttempt(response=response, score=found)
    except Exception as error:  # noqa: BLE001  (a model's, a runtime's or the verifier's: the other branches go on)
        return BranchAttempt(response=response, error=error)


class AllowanceSpentError(ModelError):
    """The branches have used the tokens that they had together; no further call was made."""

    verdict = limit("tokens")

    advice = "give `branch` a larger max_tokens, or fewer branches"


class TokenAllowance(ReasoningModel):
    """A model that makes no further call once its answers have used so many tokens. Calls under way go on."""

    def __init__(self, model: Model, max_tokens: int) -> None:
        if max_tokens < 1:
            raise UsageError(f"max_tokens is at least 1, not {max_tokens!r}")
        self.model_id = model.model_id
        self._model = model
        self._max_tokens = max_tokens
        self._spent = 0

    async def limits(self) -> ModelLimits:
        return await self._model.limits()

    def redact(self, text: str) -> str:
        return self._model.redact(text)

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        """Raises AllowanceSpentError, before anything is sent."""
        if self._spent >= self._max_tokens:
            raise AllowanceSpentError(f"{self._spent} of {self._max_tokens} tokens are used")
        async with closing(reasoned(self._model, messages)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ModelTurn):
                    self._spent += chunk.usage.total
                yield chunk
