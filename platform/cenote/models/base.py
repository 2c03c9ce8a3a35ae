"""The port through which an agent speaks to a language model."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from cenote.models.errors import ModelResponseError
from cenote.models.messages import Message
from cenote.models.server_limits import ModelLimits
from cenote.models.turn import ModelChunk, ModelTurn, ReasonedChunk

_logger = logging.getLogger("cenote.models")
_logger.addHandler(logging.NullHandler())

_T = TypeVar("_T")

CLOSE_TIMEOUT = 10.0
"""Seconds for a call to be closed. Hanging up takes none; what has not done so by then never will."""


@asynccontextmanager
async def closing(chunks: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T], None]:
    """For the answer of a model: ends the call, if that can be done, when its reader has heard enough or fails."""
    try:
        yield chunks
    finally:
        await close(chunks)


async def close(chunks: AsyncIterator[object]) -> None:
    """Ends the call. What a user's class iterates over need not be a generator.

    A failure of closing is logged: it takes nothing from an answer that is there, and must not hide the error before.
    """
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        import asyncio  # slow to import

        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await aclose()
        except Exception as error:  # noqa: BLE001 (a user's class and providers' adapters raise anything)
            _closing_failed(error)


@asynccontextmanager
async def released(resource: AbstractAsyncContextManager[_T]) -> AsyncGenerator[_T, None]:
    """A client or a response, whose failure to be closed is logged, as that of `close`."""
    entered = await resource.__aenter__()
    try:
        yield entered
    finally:
        try:
            await resource.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 (a transport raises anything)
            _closing_failed(error)


def _closing_failed(error: Exception) -> None:
    # Its text may hold the request, and with it the key.
    _logger.warning("a model call could not be closed properly: %s", type(error).__name__)


class Model(ABC):
    """A language model. One instance may serve several agents and event loops, in turn or at once."""

    model_id: str = ""
    """Name of the model; tokens are counted with the tokenizer that fits it best. Empty where it has none."""

    @abstractmethod
    def stream(self, messages: Sequence[Message]) -> AsyncIterator[ModelChunk]:
        """The answer to `messages`: text as it is written, then one `ModelTurn`.

        Best an `async def` that yields, said to give an AsyncIterator or AsyncGenerator. Nothing is sent before the
        first item is asked for. Closing the iterator (`aclose`, if it has that) cancels the request.

        Raises, all of them `ModelError`:
            ModelUnavailableError: no answer could be had, retries included; later it may.
            ModelInterruptedError: the answer broke off after text was delivered; `partial` holds that text.
            ContextLengthError: the messages are longer than the model's context.
            ModelRequestError: refused; sending it again is no use.
            ModelResponseError: the server's answer makes no sense.
        """

    def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncIterator[ReasonedChunk]:
        """As `stream`, with a `ReasoningDelta` for each piece of reasoning, where the model tells of it."""
        return self.stream(messages)

    async def complete(self, messages: Sequence[Message]) -> ModelTurn:
        """The whole answer at once. Raises what `stream` raises."""
        async with closing(self.stream(messages)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ModelTurn):
                    return chunk
        raise ModelResponseError(f"{type(self).__name__}.stream ended without a ModelTurn")

    async def limits(self) -> ModelLimits:
        """What its server says of its limits, if anything. Raises nothing: a call tells what is wrong."""
        return ModelLimits()

    def redact(self, text: str) -> str:
        """`text` without the credentials of this model, for whoever writes it down."""
        return text


class ReasoningModel(Model):
    """A model that tells of its reasoning. `stream` is made of `stream_with_reasoning`."""

    @abstractmethod
    def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncIterator[ReasonedChunk]: ...

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        async with closing(self.stream_with_reasoning(messages)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, str | ModelTurn):
                    yield chunk


def reasoned(model: Model, messages: Sequence[Message]) -> AsyncIterator[ReasonedChunk]:
    """The answer of a model with its reasoning. A class that has changed `stream` alone is asked by that."""
    if isinstance(model, ReasoningModel) and type(model).stream is ReasoningModel.stream:
        return model.stream_with_reasoning(messages)
    return model.stream(messages)
