"""Answers of models as the CaveAgent library streams them, and errors of models in its terms.

Each error is one of Cenote's, too.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self, TypeVar

from cenote.models.errors import (
    ContextLengthError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    Refusal,
    about_credit,
)
from cenote.models.retry import RetryPolicy, retry_after

RETRYABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_NETWORK: Final = re.compile(r"timed? ?out|\bconnection\b", re.IGNORECASE)


class PromptTooLongError(ContextLengthError):
    """The conversation is longer than the model's window; the agent makes it shorter and asks again."""


class ProviderBillingError(ModelRequestError):
    """The account at the provider has no credit left."""


class ProviderError(ModelError):
    """Any other failure of a provider."""


class StreamStalledError(ModelUnavailableError, TimeoutError):
    """No piece of an answer came within `stream_idle_timeout`."""


def is_context_length_exceeded(error: Exception) -> bool:
    if isinstance(error, ContextLengthError) or _status_of(error) == 413:
        return True
    return isinstance(_refusal(error).error(str), ContextLengthError)


def is_billing_exhausted(error: Exception) -> bool:
    code = str(getattr(error, "code", "") or "")
    return _status_of(error) == 402 or code == "402" or about_credit(f"{code} {error}")


def classify_provider_error(error: Exception) -> ModelError:
    """What a provider's client has raised, as one of these errors."""
    if isinstance(error, PromptTooLongError | ProviderBillingError | ProviderError | StreamStalledError):
        return error
    known = error if isinstance(error, ModelError) else None
    message = known.message if known is not None else str(error)
    if is_context_length_exceeded(error):
        return PromptTooLongError(message)
    if is_billing_exhausted(error):
        return ProviderBillingError(message)
    if known is not None:
        return ProviderError(known.message, status=known.status, code=known.code)
    return ProviderError(f"{type(error).__name__}: {error}")


def raise_model_error(error: Exception) -> NoReturn:
    typed = classify_provider_error(error)
    if typed is error:
        raise error
    raise typed from error


def unavailable(error: Exception) -> ModelUnavailableError | None:
    """The failure, where asking again may mend it."""
    if is_billing_exhausted(error):
        return None
    status = _status_of(error)
    if status is not None:
        temporary = status in RETRYABLE_STATUS
    else:
        name = type(error).__name__.lower()
        temporary = (
            isinstance(error, ConnectionError | TimeoutError | ModelUnavailableError)
            or "timeout" in name
            or "connection" in name
            or _speaks_of_the_network(error)
        )
    if not temporary:
        return None
    failure = ModelUnavailableError(str(error), status=status)
    response = getattr(error, "response", None)
    headers = getattr(error, "headers", None) or getattr(response, "headers", None) or {}
    failure.retry_after = retry_after({str(k).lower(): v for k, v in dict(headers).items()}, time.time())
    return failure


def _speaks_of_the_network(error: Exception) -> bool:
    """In words, as errors without a type of their own do. A TypeError that mentions a timeout is a fault of code."""
    is_plain = type(error) is Exception or type(error).__module__ != "builtins"
    return is_plain and _NETWORK.search(str(error)) is not None


def is_retryable(error: Exception) -> bool:
    """Whether asking again may help: after a lost connection, a rate limit or a server's own failure."""
    return unavailable(error) is not None


def _refusal(error: Exception) -> Refusal:
    code = getattr(error, "code", None)
    status = _status_of(error)
    return Refusal(
        message=str(error), status=None if status == 413 else status, code=str(code) if code else None
    )


def _status_of(error: Exception) -> int | None:
    for name in ("status_code", "status"):
        if isinstance(status := getattr(error, name, None), int):
            return status
    return None


_T = TypeVar("_T")
_POLICY = RetryPolicy(attempts=6, base=0.5)


@dataclass
class TokenUsage:
    """Tokens of one call, or of several."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )

    def to_dict(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }


def usage_in(answer: object) -> TokenUsage:
    """The usage that an answer, or a chunk of one, reports; zeros where it reports none."""
    reported = getattr(answer, "usage", None)
    if not reported:
        return TokenUsage()
    prompt = getattr(reported, "prompt_tokens", 0) or 0
    completion = getattr(reported, "completion_tokens", 0) or 0
    total = getattr(reported, "total_tokens", 0) or prompt + completion
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total)


@dataclass
class StreamDelta:
    """A piece of an answer, or of reasoning."""

    content: str | None = None
    thinking: str | None = None


class StreamResponse:
    """An answer, piece by piece. Subclasses open a stream of chunks in the form of OpenAI's.

    usage, finish_reason, thinking, refusal: as far as they are known; all of it after the last piece.
    """

    def __init__(self) -> None:
        self.usage = TokenUsage()
        self.finish_reason: str | None = None
        self.thinking = ""
        self.refusal = ""
        self.on_backoff: Callable[[float], None] | None = None
        self._response: Any = None
        self._iterator: AsyncIterator[Any] | None = None
        self._received_output = False
        self._attempts = 0

    async def _open_stream(self) -> AsyncIterator[Any]:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamDelta:
        while True:
            try:
                if self._iterator is None:
                    self._response = await self._open_stream()
                    self._iterator = aiter(self._response)
                chunk = await anext(self._iterator)
            except StopAsyncIteration:
                raise
            except Exception as error:  # noqa: BLE001 (a provider's client raises anything)
                if self.finish_reason is not None:
                    raise StopAsyncIteration from None  # only the usage was still to come
                await self._again_after(error)
                continue
            try:
                delta = self._process_stream_chunk(chunk)
            except Exception as error:  # noqa: BLE001 (and its chunks have any shape)
                raise_model_error(error)
            if delta is not None:
                self._received_output = True
                return delta

    async def _again_after(self, error: Exception) -> None:
        """Waits until the request may be sent again. Raises what went wrong where that is no use."""
        self._attempts += 1
        failure = None if self._received_output else unavailable(error)
        delay = None if failure is None else _delay(self._attempts, failure)
        if delay is None:
            raise_model_error(error)
        with suppress(Exception):  # the connection is lost anyway
            await self.aclose()
        if self.on_backoff is not None:
            self.on_backoff(delay)
        await asyncio.sleep(delay)

    def _process_stream_chunk(self, chunk: Any) -> StreamDelta | None:
        """What a chunk brings. What is no piece of the answer is kept in the attributes."""
        if getattr(chunk, "usage", None):
            self.usage = usage_in(chunk)
        choices = getattr(chunk, "choices", None)
        if not choices:
            return None
        if choices[0].finish_reason:
            self.finish_reason = choices[0].finish_reason
        delta = choices[0].delta
        if delta is None:
            return None
        thinking = getattr(delta, "reasoning", None) or getattr(delta, "reasoning_content", None)
        self.thinking += thinking or ""
        if refusal := getattr(delta, "refusal", None):
            self.refusal += refusal
            self._received_output = True
        content = delta.content
        return StreamDelta(content=content, thinking=thinking) if content or thinking else None

    async def aclose(self) -> None:
        """Ends the request. Doing so twice is fine."""
        response, self._response, self._iterator = self._response, None, None
        closer = getattr(response, "aclose", None) or getattr(response, "close", None)
        if closer is None:
            return
        try:
            outcome = closer()
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:  # noqa: BLE001 (a provider's client raises anything)
            raise_model_error(error)


async def stream_with_idle_timeout(
    stream: AsyncIterator[_T], idle_timeout: float | None
) -> AsyncGenerator[_T, None]:
    """The items of a stream. Raises StreamStalledError (a TimeoutError) where one takes longer than that."""
    if idle_timeout is None:
        async for item in stream:
            yield item
        return
    clock = asyncio.get_running_loop().time
    items = aiter(stream)
    while True:
        try:
            async with asyncio.timeout(idle_timeout) as limit:
                if isinstance(stream, StreamResponse):
                    stream.on_backoff = _extending(limit, clock, idle_timeout)
                item = await anext(items)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if getattr(stream, "finish_reason", None) is not None:
                return  # only the usage was still to come
            raise StreamStalledError(
                f"LLM stream stalled: no piece of an answer for {idle_timeout:g} s (stream_idle_timeout)"
            ) from None
        yield item


async def with_retry_typed(operation: Callable[[], Awaitable[_T]]) -> _T:
    """What an operation gives, tried again where that may help. Raises one of this package's model errors."""
    attempt = 0
    while True:
        try:
            return await operation()
        except Exception as error:  # noqa: BLE001 (a provider's client raises anything)
            attempt += 1
            failure = unavailable(error)
            delay = None if failure is None else _delay(attempt, failure)
            if delay is None:
                raise_model_error(error)
        await asyncio.sleep(delay)


def _delay(attempt: int, failure: ModelUnavailableError) -> float | None:
    return _POLICY.delay(attempt=attempt, error=failure, draw=random.random())


def _extending(
    limit: asyncio.Timeout, clock: Callable[[], float], idle_timeout: float
) -> Callable[[float], None]:
    """Time that the client itself waits before it asks again is none of the server's."""
    return lambda seconds: limit.reschedule(clock() + seconds + idle_timeout)
