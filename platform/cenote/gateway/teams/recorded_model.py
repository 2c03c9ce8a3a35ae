"""A model whose answers are written down when they are there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict
from typing import Any

from cenote.gateway.teams.course import Course
from cenote.models import (
    ContextLengthError,
    Message,
    Model,
    ModelChunk,
    ModelError,
    ModelInterruptedError,
    ModelTurn,
    TokenUsage,
)
from cenote.models.base import ReasoningModel, closing, reasoned
from cenote.models.turn import ReasonedChunk, ReasoningDelta


class RecordedModel(ReasoningModel):
    """What a model has answered before comes from the record, in one piece, and costs nothing."""

    def __init__(self, course: Callable[[], Course], model: Model) -> None:
        """course: the task that its agent works on."""
        self.model_id = model.model_id
        self._course = course
        self._model = model

    def redact(self, text: str) -> str:
        return self._model.redact(text)

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        known = self._course().next("turn")
        if known is not None:
            for heard in _heard(known):
                yield heard
            return
        pieces: list[str] = []
        finished = False
        try:
            async with closing(reasoned(self._model, messages)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, str):
                        pieces.append(chunk)
                    elif not isinstance(chunk, ReasoningDelta):
                        finished = True
                        self._note("".join(pieces), chunk)
                    yield chunk
        except GeneratorExit:  # the agent has heard enough
            if not finished:
                self._note("".join(pieces), None)
            raise
        except ModelError as error:
            self._fail("".join(pieces), error)
            raise

    def _note(self, text: str, turn: ModelTurn | None) -> None:
        ending = None if turn is None else {**asdict(turn), "usage": asdict(turn.usage)}
        self._course().note("turn", {"text": text, "turn": ending})

    def _fail(self, text: str, error: ModelError) -> None:
        """Those failures are noted after which an agent goes on by itself; after others its task is over."""
        if isinstance(error, ContextLengthError | ModelInterruptedError):
            kind = "context" if isinstance(error, ContextLengthError) else "interrupted"
            told = {"text": text, "error": kind, "message": self.redact(error.message)}
            self._course().note("turn", told)


def _heard(known: dict[str, Any]) -> list[ModelChunk]:
    """The chunks of a turn on record. Raises the error that it ended with."""
    if known.get("error") == "context":
        raise ContextLengthError(known["message"])
    if known.get("error") == "interrupted":
        raise ModelInterruptedError(known["message"], known["text"])
    chunks: list[ModelChunk] = [known["text"]] if known["text"] else []
    if (turn := known["turn"]) is not None:
        usage = TokenUsage(**turn["usage"])
        chunks.append(ModelTurn(turn["text"], turn["finish_reason"], usage))
    return chunks
