"""The port through which an agent speaks to a language model, and the limits that its server tells.

Which pages to ask for limits and how to read each is decided here; asking is left to the models. Where no server
reports usage, it is estimated.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from cenote import tokens
from cenote.models.errors import ModelResponseError
from cenote.models.messages import Message, ModelChunk, ModelTurn, ReasonedChunk, TokenUsage

MAX_TOKENS = 100_000_000
"""More than that is no context window of any model."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Tokens; None where the server does not say. context_window: of prompt and answer together. max_output: of one
    answer."""

    context_window: int | None = None
    max_output: int | None = None


def pages(base_url: str) -> tuple[str, ...]:
    """Where servers say it, in the order in which to ask: vLLM, OpenRouter and others in the list of models, then
    llama.cpp, LM Studio and Ollama in pages of their own."""
    parts = urlsplit(base_url)
    root = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), query="").geturl()
    return f"{base_url}/models", f"{root}/props", f"{root}/api/v0/models", f"{root}/api/ps"


def read_limits(page: object, model_id: str) -> ModelLimits:
    """The limits of a model in one of these pages."""
    found = [_of_entry(entry) for entry in _entries(page, model_id)]
    window = next((limits.context_window for limits in found if limits.context_window), None)
    return ModelLimits(window, next((limits.max_output for limits in found if limits.max_output), None))


def _entries(page: object, model_id: str) -> Iterator[Mapping[str, object]]:
    """What a page says of the model: of several, of that with its name; a server with one model has no other."""
    if not isinstance(page, Mapping):
        return
    yield page
    for key in ("data", "models"):
        listed = page.get(key)
        entries = (
            [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
        )
        for entry in entries:
            if len(entries) == 1 or model_id in (entry.get("id"), entry.get("name"), entry.get("model")):
                yield entry


def _of_entry(entry: Mapping[str, object]) -> ModelLimits:
    settings, meta, provider = (
        inner if isinstance(inner := entry.get(key), Mapping) else {}
        for key in ("default_generation_settings", "meta", "top_provider")
    )
    return ModelLimits(
        _first(
            settings.get("n_ctx"),  # llama.cpp, of one slot
            entry.get("max_model_len"),  # vLLM
            entry.get("loaded_context_length"),  # LM Studio; without it the model is not loaded
            provider.get("context_length"),  # OpenRouter, of the provider that answers
            entry.get("context_length"),  # OpenRouter, Together; Ollama, of what is loaded
            entry.get("context_window"),  # Groq
            meta.get("n_ctx"),
        ),
        _first(
            provider.get("max_completion_tokens"),
            entry.get("max_completion_tokens"),
            entry.get("max_output_tokens"),
        ),
    )


def _first(*given: object) -> int | None:
    """The first that is a number of tokens."""
    return next(
        (n for n in given if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= MAX_TOKENS), None
    )


def estimate_usage(messages: Sequence[Message], text: str, model_id: str | None = None) -> TokenUsage:
    """Usage of a call that sent `messages` and got `text`: for servers that report none, and for streams that
    were closed early or broke off.
    """
    return TokenUsage(
        prompt=tokens.count_messages(messages, model_id, tokens.approximate_tokens),
        completion=tokens.approximate_tokens(text, model_id),
        estimated=True,
    )


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
        """`text` without the credentials of this model, for logs and records."""
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
