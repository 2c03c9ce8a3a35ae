"""What models behind a network have in common: retries, hidden credentials, usage that may be refused."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from cenote.models.base import Model
from cenote.models.completion import Completion
from cenote.models.credentials import Credentials
from cenote.models.errors import ModelRequestError
from cenote.models.estimate import estimate_usage
from cenote.models.messages import Message
from cenote.models.retry import RetryPolicy
from cenote.models.retrying import Waits, stream_with_retries
from cenote.models.turn import ModelChunk, ModelTurn
from cenote_security.errors import UsageError


class RemoteModel(Model):
    """A model that is asked over a network. Subclasses send one request and read one answer."""

    def __init__(
        self, model_id: str, credentials: Credentials, retry: RetryPolicy | None, waits: Waits | None
    ) -> None:
        if not isinstance(model_id, str) or not model_id.strip():
            raise UsageError(f"model_id is the name of a model, such as 'openai/gpt-5', not {model_id!r}")
        self.model_id = model_id
        self._credentials = credentials
        self._retry = retry or RetryPolicy()
        self._waits = waits or Waits()
        self._asks_for_usage = True  # until the server says that it knows no stream_options

    @abstractmethod
    def _exchange(self, messages: Sequence[Message], completion: Completion) -> AsyncGenerator[str, None]:
        """Sends `messages` once, feeds the answer to `completion` and yields the pieces of its text.

        Raises ModelUnavailableError for what another try may mend. Errors show no credential: `redact`.
        """

    def redact(self, text: str) -> str:
        return self._credentials.redact(text)

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        sent = tuple(messages)
        attempts = stream_with_retries(lambda: self._attempt(sent), self._retry, self._waits)
        async with aclosing(attempts) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _attempt(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        """One answer; asked for once more where the server refuses to report usage in a stream."""
        while True:
            try:
                async with aclosing(self._answer(messages)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except ModelRequestError as error:
                if not (self._asks_for_usage and _refuses_stream_options(error)):
                    raise
                self._asks_for_usage = False

    async def _answer(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        completion = Completion(self.redact)
        async with aclosing(self._exchange(messages, completion)) as deltas:
            async for delta in deltas:
                yield delta
        usage = completion.usage or estimate_usage(messages, completion.text, self.model_id)
        yield ModelTurn(completion.text, completion.finish_reason, usage)


def _refuses_stream_options(error: ModelRequestError) -> bool:
    return error.status in (400, 422) and (
        "stream_options" in error.message or "include_usage" in error.message
    )
