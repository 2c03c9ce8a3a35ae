"""A model whose calls are paid for from the team's budget."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cenote import tokens
from cenote.models import Message, Model, ModelError, ModelTurn, TokenUsage, estimate_usage
from cenote.models.base import ModelLimits, ReasoningModel, closing, reasoned
from cenote.models.messages import ReasonedChunk, ReasoningDelta
from cenote.models.prices import Price
from cenote.team.budget import Amount, Budget

CUT_OFF = "length"
"""Why an answer ended that was longer than what was reserved for it, in the words that servers use."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """What the calls of one agent, and of those made from it, came to."""

    calls: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    prompt_bytes: int = 0


class Payer(Protocol):
    """Reserves and settles the costs of calls: a BudgetLedger, or a wrapper of one."""

    @property
    def budget(self) -> Budget: ...

    async def reserve(self, amount: Amount) -> int:
        """A ticket for `settle`. Raises BudgetExceededError."""

    def settle(self, ticket: int, used: Amount) -> None:
        """What the call cost in the end."""


class MeteredModel(ReasoningModel):
    """Reserves before each call, cuts an answer off that outgrows its reservation, settles with the real usage.

    Prompts are estimated with the tokenizer that fits best, and by as much more as this model's server has
    reported so far. price: needed where the budget limits cost.
    """

    def __init__(self, model: Model, treasury: Payer, meter: Meter, price: Price | None) -> None:
        self.model_id = model.model_id
        self._model = model
        self._treasury = treasury
        self._meter = meter
        self._price = price
        self._excess = 1.0

    async def limits(self) -> ModelLimits:
        return await self._model.limits()

    def redact(self, text: str) -> str:
        return self._model.redact(text)

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        """Raises BudgetExceededError where the budget does not cover the call, before anything is sent."""
        estimate = self._estimate(messages)
        ticket = await self._treasury.reserve(self._amount(estimate))
        answer = _Answer(estimate.completion, self.model_id)
        turn: ModelTurn | None = None
        used: TokenUsage | None = None
        try:
            async with closing(reasoned(self._model, messages)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, ReasoningDelta):
                        yield chunk
                        continue
                    turn = chunk if isinstance(chunk, ModelTurn) else answer.take(chunk, messages)
                    if turn is not None:
                        used = turn.usage
                    if isinstance(chunk, str):
                        yield chunk
                    if turn is not None:
                        break
        except ModelError:
            # Refused before a word was written: nothing is charged.
            used = None if answer.text else TokenUsage()
            raise
        finally:
            self._settle(ticket, messages, estimate, used or answer.usage(messages))
        if turn is not None:
            yield turn

    def _estimate(self, messages: Sequence[Message]) -> TokenUsage:
        """What the call takes at most; nothing is counted where nothing is limited."""
        if not self._treasury.budget.counts_tokens:
            return TokenUsage()
        prompt = math.ceil(
            tokens.count_messages(messages, self.model_id, tokens.approximate_tokens) * self._excess
        )
        token = 0 if self._price is None else self._price.nanodollars(TokenUsage(completion=1000)) // 1000
        return TokenUsage(prompt=prompt, completion=self._treasury.budget.reserve(token))

    def _amount(self, usage: TokenUsage) -> Amount:
        nanodollars = 0 if self._price is None else self._price.nanodollars(usage)
        return Amount(tokens=usage.total, nanodollars=nanodollars)

    def _settle(
        self, ticket: int, messages: Sequence[Message], estimate: TokenUsage, used: TokenUsage
    ) -> None:
        self._meter.calls += 1
        self._meter.usage += used
        self._meter.prompt_bytes += sum(
            len(message.content.encode("utf-8", "replace")) for message in messages
        )
        if estimate.prompt:
            self._excess *= max(1.0, used.prompt / estimate.prompt)
        self._treasury.settle(ticket, self._amount(used))


class _Answer:
    """The text of an answer, and whether it has more tokens than were reserved (0: they are not counted)."""

    def __init__(self, reserved: int, model_id: str) -> None:
        self._reserved = reserved
        self._model_id = model_id
        self._parts: list[str] = []
        self._bytes = 0
        self._counted_at = reserved

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def usage(self, messages: Sequence[Message]) -> TokenUsage:
        """What it comes to so far, counted here: of a call that is stopped, no server tells."""
        return estimate_usage(messages, self.text, self._model_id)

    def take(self, piece: str, messages: Sequence[Message]) -> ModelTurn | None:
        """A further piece of the answer to these messages; the end of it if it has become too long."""
        self._parts.append(piece)
        self._bytes += len(piece.encode("utf-8", "replace"))
        return ModelTurn(self.text, CUT_OFF, self.usage(messages)) if self._is_too_long() else None

    def _is_too_long(self) -> bool:
        """No token is shorter than a byte, so that counting can wait until it may matter."""
        if not self._reserved or self._bytes <= self._counted_at:
            return False
        left = self._reserved - tokens.approximate_tokens(self.text, self._model_id)
        self._counted_at = self._bytes + max(left, 0)
        return left < 0
