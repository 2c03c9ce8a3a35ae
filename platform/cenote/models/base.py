"""The port through which an agent speaks to a language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from cenote.models.errors import ModelResponseError
from cenote.models.messages import Message
from cenote.models.turn import ModelChunk, ModelTurn


@asynccontextmanager
async def closing(chunks: AsyncIterator[ModelChunk]) -> AsyncGenerator[AsyncIterator[ModelChunk], None]:
    """For the answer of a model: ends the call, if that can be done, when its reader has heard enough or fails."""
    try:
        yield chunks
    finally:
        await close(chunks)


async def close(chunks: AsyncIterator[ModelChunk]) -> None:
    """Ends the call. What a user's class iterates over need not be a generator."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        await aclose()


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

    async def complete(self, messages: Sequence[Message]) -> ModelTurn:
        """The whole answer at once. Raises what `stream` raises."""
        async with closing(self.stream(messages)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ModelTurn):
                    return chunk
        raise ModelResponseError(f"{type(self).__name__}.stream ended without a ModelTurn")

    def redact(self, text: str) -> str:
        """`text` without the credentials of this model, for whoever writes it down."""
        return text
