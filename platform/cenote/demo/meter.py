"""Counts what goes through a model: calls, tokens, bytes of text, seconds."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence

from cenote.models.base import Model, closing, estimate_usage
from cenote.models.messages import Message, ModelChunk, ModelTurn, TokenUsage


class MeasuredModel(Model):
    """Another model, measured.

    calls: requests so far. usage: their tokens, counted here for an answer that was stopped early.
    prompt_bytes: UTF-8 bytes of all messages sent, repeats included. seconds: spent in calls.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.model_id = model.model_id
        self.calls = 0
        self.usage = TokenUsage()
        self.prompt_bytes = 0
        self.seconds = 0.0

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        self.calls += 1
        self.prompt_bytes += sum(len(message.content.encode()) for message in messages)
        started = time.perf_counter()
        text, usage = "", None
        try:
            async with closing(self._model.stream(messages)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, ModelTurn):
                        usage = chunk.usage
                    else:
                        text += chunk
                    yield chunk
        finally:
            self.seconds += time.perf_counter() - started
            self.usage += usage or estimate_usage(messages, text, self.model_id)

    def redact(self, text: str) -> str:
        return self._model.redact(text)
