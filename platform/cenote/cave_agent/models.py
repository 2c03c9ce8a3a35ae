"""Models of the CaveAgent library: its interface, and Cenote's models under its names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cenote import models
from cenote.cave_agent.streams import (
    PromptTooLongError,
    ProviderBillingError,
    ProviderError,
    StreamDelta,
    StreamResponse,
    StreamStalledError,
    TokenUsage,
    classify_provider_error,
    is_billing_exhausted,
    is_context_length_exceeded,
    is_retryable,
    raise_model_error,
    stream_with_idle_timeout,
    usage_in,
    with_retry_typed,
)
from cenote.models import Message, ModelError, ModelTurn, estimate_usage
from cenote.models.base import ReasoningModel, close
from cenote.models.errors import ModelInterruptedError
from cenote.models.messages import REFUSAL, ReasonedChunk, ReasoningDelta
from cenote_security.errors import UsageError

__all__ = [
    "LiteLLMModel",
    "Model",
    "ModelError",
    "ModelResponse",
    "OpenAIModel",
    "PromptTooLongError",
    "ProviderBillingError",
    "ProviderError",
    "StreamDelta",
    "StreamResponse",
    "StreamStalledError",
    "TokenUsage",
    "is_billing_exhausted",
    "is_context_length_exceeded",
    "is_retryable",
    "stream_with_idle_timeout",
]

Wire = Mapping[str, str]


@dataclass
class ModelResponse:
    """A whole answer. refusal: what the model said in declining; then also the content, where there is no other."""

    content: str
    usage: TokenUsage = field(default_factory=TokenUsage)
    finish_reason: str | None = None
    thinking: str | None = None
    refusal: str | None = None


class Model(ABC):
    """A model as that library asks it: `_complete` for a whole answer, `stream` for one in pieces.

    max_output_tokens: how long an answer may be, as far as that is known.
    filters_asynchronously: whether its provider may withdraw text after it was sent; it is read to the end then.
    """

    max_output_tokens: int | None = None
    filters_asynchronously: bool = False

    @abstractmethod
    async def _complete(self, messages: list[dict[str, str]]) -> ModelResponse: ...

    @abstractmethod
    def stream(self, messages: list[dict[str, str]]) -> StreamResponse: ...

    async def call(self, messages: list[dict[str, str]]) -> ModelResponse:
        """A whole answer; asked for again where that may help. Raises the errors of this module."""
        return await with_retry_typed(lambda: self._complete(messages))

    async def aclose(self) -> None:
        """Ends what is held open between calls: by this class, nothing."""
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @staticmethod
    def _extract_token_usage(response: Any) -> TokenUsage:
        return usage_in(response)


class _CenoteModel(Model):
    """One of Cenote's models, asked as that library asks."""

    def __init__(self, inner: models.Model, max_output_tokens: int | None, *, filters: bool) -> None:
        self.inner = inner
        self.model_id = inner.model_id
        self.max_output_tokens = max_output_tokens
        self.filters_asynchronously = filters

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    async def _complete(self, messages: list[dict[str, str]]) -> ModelResponse:
        stream = self.stream(messages)
        text = "".join([delta.content or "" async for delta in stream])
        refusal = stream.refusal or None
        return ModelResponse(
            content=text or refusal or "",
            usage=stream.usage,
            finish_reason=stream.finish_reason,
            thinking=stream.thinking or None,
            refusal=refusal,
        )

    async def call(self, messages: list[dict[str, str]]) -> ModelResponse:
        try:
            return await self._complete(messages)
        except ModelError as error:
            raise_model_error(error)

    def stream(self, messages: list[dict[str, str]]) -> StreamResponse:
        return _CenoteStream(self.inner, _messages_in(messages))


class _CenoteStream(StreamResponse):
    """The answer of one of Cenote's models."""

    def __init__(self, inner: models.Model, messages: Sequence[Message]) -> None:
        super().__init__()
        self._inner = inner
        self._messages = messages

    async def _open_stream(self) -> AsyncIterator[Any]:
        return self._inner.stream_with_reasoning(self._messages)

    def _process_stream_chunk(self, chunk: ReasonedChunk) -> StreamDelta | None:
        if isinstance(chunk, str):
            return StreamDelta(content=chunk)
        if isinstance(chunk, ReasoningDelta):
            self.thinking += chunk.text
            return StreamDelta(thinking=chunk.text)
        if chunk.finish_reason == REFUSAL:
            self.refusal += chunk.text
        self.finish_reason = "stop" if chunk.finish_reason == REFUSAL else chunk.finish_reason
        self.usage = in_cave_agent(chunk.usage)
        return None

    async def _again_after(self, error: Exception) -> None:
        raise_model_error(error)  # the model itself has asked again


class OpenAIModel(_CenoteModel):
    """A server of OpenAI's chat completions: `cenote.models.OpenAIServerModel`.

    max_output_tokens: how long answers may get, for the compactor; `max_tokens` and `max_completion_tokens` are
        sent as they are, and count for it too.
    parameters: settings of OpenAIServerModel, and parameters of the request.
    """

    def __init__(
        self,
        model_id: str,
        base_url: str | None = None,
        api_key: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        max_output_tokens: int | None = None,
        filters_asynchronously: bool = False,
        **parameters: Any,
    ) -> None:
        self.kwargs = parameters
        sent = {name: value for name, value in parameters.items() if name not in _SET_BY_CENOTE}
        inner = models.OpenAIServerModel(
            model_id, api_key, base_url, organization=organization, project=project, **sent
        )
        super().__init__(inner, _cap(max_output_tokens, parameters), filters=filters_asynchronously)


class LiteLLMModel(_CenoteModel):
    """A model of any provider that LiteLLM knows: `cenote.models.LiteLLMModel`.

    max_output_tokens: how long answers may get; sent as `max_tokens` where no other parameter says so.
    """

    def __init__(
        self,
        model_id: str,
        base_url: str | None = None,
        api_key: str | None = None,
        custom_llm_provider: str | None = None,
        max_output_tokens: int | None = None,
        filters_asynchronously: bool = False,
        **parameters: Any,
    ) -> None:
        if base_url is not None:
            parameters["base_url"] = base_url
        cap = _cap(max_output_tokens, parameters)
        if cap is not None and parameters.get("max_completion_tokens") is None:
            parameters["max_tokens"] = cap
        self.kwargs = parameters
        sent = {name: value for name, value in parameters.items() if name not in _SET_BY_CENOTE}
        inner = models.LiteLLMModel(model_id, api_key, custom_llm_provider, **sent)
        super().__init__(inner, cap, filters=filters_asynchronously)


_SET_BY_CENOTE = frozenset({"stream", "stream_options"})
"""Parameters of the request that a script may name: whether there is a stream is Cenote's to say."""


def _cap(declared: int | None, parameters: Mapping[str, Any]) -> int | None:
    """How long an answer may get. Raises UsageError (a ValueError) for limits that say different things."""
    names = ("max_completion_tokens", "max_tokens")
    sent = {name: parameters[name] for name in names if parameters.get(name) is not None}
    if len(sent) > 1:
        raise UsageError("give only one of max_completion_tokens and max_tokens")
    if declared is not None and sent and declared not in sent.values():
        raise UsageError(
            "max_output_tokens must match the wire token cap, max_tokens or max_completion_tokens"
        )
    return next(iter(sent.values()), declared)


def in_cave_agent(usage: models.TokenUsage) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=usage.prompt, completion_tokens=usage.completion, total_tokens=usage.total
    )


def in_cenote(model: Any, idle_timeout: float | None = 120.0) -> models.Model:
    """A model for Cenote's agents. Raises UsageError for what is none."""
    if (
        isinstance(model, _CenoteModel)
        and type(model).stream is _CenoteModel.stream
        and not model.filters_asynchronously
    ):
        return model.inner
    if isinstance(model, models.Model):
        return model
    if not callable(getattr(model, "stream", None)):
        raise UsageError(f"an agent needs a model, such as OpenAIModel(...), not {type(model).__name__}")
    return AskedModel(model, idle_timeout)


def with_call(model: Any) -> Any:
    """A model that gives whole answers: one of Cenote's as one of that library's, any other as it is."""
    return _CenoteModel(model, None, filters=False) if isinstance(model, models.Model) else model


class AskedModel(ReasoningModel):
    """A model of that library's interface, for Cenote's agents."""

    def __init__(self, model: Any, idle_timeout: float | None) -> None:
        self._model = model
        self._idle_timeout = idle_timeout
        self.model_id = str(getattr(model, "model_id", ""))

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        wire = [{"role": message.role, "content": message.content} for message in messages]
        # A provider that filters late may take back what it has sent: nothing of it is shown before the end.
        waits = bool(getattr(self._model, "filters_asynchronously", False))
        text = ""
        try:
            stream = self._model.stream(wire)
        except Exception as error:  # noqa: BLE001 (a user's class raises anything)
            raise_model_error(error)
        try:
            async for delta in stream_with_idle_timeout(stream, self._idle_timeout):
                if delta.thinking:
                    yield ReasoningDelta(delta.thinking)
                if delta.content:
                    text += delta.content
                    if not waits:
                        yield delta.content
        except Exception as error:
            failure = classify_provider_error(error)
            if text and not waits:
                raise ModelInterruptedError(failure.message, text) from error
            raise failure from error
        finally:
            await close(stream)
        reason, refusal = stream.finish_reason, getattr(stream, "refusal", "")
        if waits and reason not in (None, "content_filter") and text:
            yield text
        if refusal and not text:
            text, reason = refusal, REFUSAL
        yield ModelTurn(text, reason, _usage(stream, messages, text, self.model_id))

    def redact(self, text: str) -> str:
        redact = getattr(self._model, "redact", None)
        return str(redact(text)) if callable(redact) else text


def _usage(stream: Any, messages: Sequence[Message], text: str, model_id: str) -> models.TokenUsage:
    """What the server has reported, else what is counted."""
    reported = getattr(stream, "usage", None)
    prompt = getattr(reported, "prompt_tokens", 0) or 0
    completion = getattr(reported, "completion_tokens", 0) or 0
    if prompt or completion:
        return models.TokenUsage(prompt=prompt, completion=completion)
    return estimate_usage(messages, text + (getattr(stream, "thinking", "") or ""), model_id or None)


def _messages_in(messages: Sequence[Wire | Message]) -> tuple[Message, ...]:
    return tuple(m if isinstance(m, Message) else Message(m["role"], m["content"]) for m in messages)  # type: ignore[arg-type]
