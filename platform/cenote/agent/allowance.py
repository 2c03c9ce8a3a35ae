"""A budget of tokens that the branches of one agent have together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from cenote.models import Message, Model, ModelError, ModelTurn
from cenote.models.base import ReasoningModel, closing, reasoned
from cenote.models.server_limits import ModelLimits
from cenote.models.turn import ReasonedChunk
from cenote_security.errors import UsageError
from cenote_security.verdict import limit


class AllowanceSpentError(ModelError):
    """The branches have used the tokens that they had together; no further call was made."""

    verdict = limit("tokens")

    advice = "give `branch` a larger max_tokens, or fewer branches"


class Allowance(ReasoningModel):
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
