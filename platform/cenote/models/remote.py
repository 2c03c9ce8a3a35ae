"""What models behind a network have in common: retries, hidden credentials, usage that may be refused."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence

from cenote.models.base import ReasoningModel, closing
from cenote.models.completion import Completion, nothing
from cenote.models.credentials import Credentials
from cenote.models.errors import ModelRequestError, ModelUnavailableError
from cenote.models.estimate import estimate_usage
from cenote.models.messages import Message
from cenote.models.retry import RetryPolicy
from cenote.models.retrying import Waits, stream_with_retries
from cenote.models.turn import REFUSAL, ModelTurn, ReasonedChunk, ReasoningDelta
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds


class RemoteModel(ReasoningModel):
    """A model that is asked over a network. Subclasses send one request and read one answer."""

    def __init__(
        self,
        model_id: str,
        credentials: Credentials,
        retry: RetryPolicy | None,
        waits: Waits | None,
        idle_timeout: float,
    ) -> None:
        if not isinstance(model_id, str) or not model_id.strip():
            raise UsageError(f"model_id is the name of a model, such as 'openai/gpt-5', not {model_id!r}")
        self.model_id = model_id
        self._credentials = credentials
        self._retry = retry or RetryPolicy()
        self._waits = waits or Waits()
        check_seconds(idle_timeout, "idle_timeout")
        self._idle_timeout = idle_timeout
        self._asks_for_usage = True  # until the server says that it knows no stream_options

    @abstractmethod
    def _exchange(
        self, messages: Sequence[Message], completion: Completion
    ) -> AsyncGenerator[str | ReasoningDelta, None]:
        """Sends `messages` once, feeds the answer to `completion` and yields the pieces of text and reasoning.

        Says `completion.progress()` when the server has begun to answer: from then on it must not pause for longer
        than `idle_timeout`.

        Raises ModelUnavailableError for what another try may mend. Errors show no credential: `redact`.
        """

    def redact(self, text: str) -> str:
        return self._credentials.redact(text)

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        sent = tuple(messages)
        attempts = stream_with_retries(lambda: self._attempt(sent), self._retry, self._waits)
        async with closing(attempts) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _attempt(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        """One answer; asked for once more where the server refuses to report usage in a stream."""
        while True:
            try:
                async with closing(self._answer(messages)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except ModelRequestError as error:
                if not (self._asks_for_usage and _refuses_stream_options(error)):
                    raise
                self._asks_for_usage = False

    async def _answer(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        completion = Completion(self.redact)
        exchange = self._exchange(messages, completion)
        async with closing(exchange):
            while (delta := await self._next(exchange, completion)) is not None:
                yield delta
        if calls := completion.close_tool_calls():
            yield calls
        text, reason = completion.text, completion.finish_reason
        if completion.refusal:
            text, reason = text + completion.refusal, REFUSAL
        usage = completion.usage or estimate_usage(messages, text, self.model_id)
        yield ModelTurn(text, reason, usage)

    async def _next(
        self, exchange: AsyncGenerator[str | ReasoningDelta, None], completion: Completion
    ) -> str | ReasoningDelta | None:
        """The next piece; None at the end. What only keeps a connection alive is no piece of an answer."""
        import asyncio  # slow to import

        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(None) as limit:
                completion.on_progress = lambda: limit.reschedule(clock() + self._idle_timeout)
                if completion.has_begun:
                    completion.on_progress()
                delta = await anext(exchange, None)
                completion.on_progress = nothing
                return delta
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModelUnavailableError(
                f"no piece of an answer for {self._idle_timeout:g} s (idle_timeout)"
            ) from None


def _refuses_stream_options(error: ModelRequestError) -> bool:
    return error.status in (400, 422) and (
        "stream_options" in error.message or "include_usage" in error.message
    )
