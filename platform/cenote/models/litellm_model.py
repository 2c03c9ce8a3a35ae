"""A model of any provider that LiteLLM knows."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from cenote.models.base import closing
from cenote.models.completion import Completion, wire_messages
from cenote.models.errors import Credentials
from cenote.models.messages import Message, ReasoningDelta
from cenote.models.remote import RemoteModel, Waits, check_addresses, one_address, shown_address
from cenote.models.retry import RetryPolicy
from cenote_security.errors import UsageError
from cenote_security.extras import require

if TYPE_CHECKING:
    from cenote.models.litellm_library import LiteLLMStream

_OWN_PARAMETERS = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "num_retries", "max_retries"}
)
_SECRET_NAME = re.compile(r"key|token|secret|password|credential|header|auth", re.IGNORECASE)


class LiteLLMModel(RemoteModel):
    """Streams from whatever provider `model_id` names, such as `anthropic/claude-sonnet-4-5`.

    LiteLLM is imported at the first request, and does nothing on the network but that request.

    api_key: None leaves it to LiteLLM, which looks into the provider's environment variable.
    custom_llm_provider: provider of a `model_id` that names none; `openai` for any compatible server.
    connect_timeout, idle_timeout: seconds to connect, and for each further piece of an answer.
    retry: when to ask again while nothing of an answer has arrived; LiteLLM's own retries are off.
    parameters: passed to LiteLLM, such as `api_base="http://..."`, `temperature=0.2`. Those whose names speak
        of keys, tokens, secrets or headers are treated as secret.

    Raises UsageError, and MissingExtraError without LiteLLM; OpenAIServerModel needs none.
    """

    def __init__(
        self,
        model_id: str,
        api_key: str | None = None,
        custom_llm_provider: str | None = None,
        *,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        retry: RetryPolicy | None = None,
        waits: Waits | None = None,
        **parameters: object,
    ) -> None:
        require(f"LiteLLM, which reaches the model {model_id!r:.100},", "models", "litellm")
        if own := _OWN_PARAMETERS & parameters.keys():
            raise UsageError(
                f"these parameters are set by Cenote itself: {', '.join(sorted(own))}; "
                f"retries are set by retry=RetryPolicy(attempts=...)"
            )
        check_addresses(parameters)
        address = one_address(**{name: parameters.get(name) for name in ("api_base", "base_url")})
        secret = {name: value for name, value in parameters.items() if _is_secret(name, value)}
        super().__init__(
            model_id,
            Credentials(api_key, secret),
            retry,
            waits,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
        )
        self._address = shown_address(address or "")
        self._provider = custom_llm_provider
        self._parameters = {name: value for name, value in parameters.items() if name not in secret}

    def __repr__(self) -> str:
        return f"LiteLLMModel(model_id={self.model_id!r}, custom_llm_provider={self._provider!r})"

    async def _exchange(
        self, messages: Sequence[Message], completion: Completion
    ) -> AsyncGenerator[str | ReasoningDelta, None]:
        import asyncio

        from cenote.models.litellm_library import (
            is_whole,
            keep_to_the_facts,
            load,
            model_error,
            timeout_of,
            without_key,
        )

        library = await asyncio.to_thread(load)  # the first time takes seconds
        stream: LiteLLMStream | None = None
        try:
            stream = await library.acompletion(**self._arguments(messages))
            completion.progress()
            async with closing(stream):
                async for chunk in stream:
                    for piece in completion.read(chunk.model_dump()):
                        yield piece
        except Exception as error:  # noqa: BLE001 (providers' adapters raise anything)
            late = timeout_of(error)
            failure = self._too_late(late) if late else model_error(error, self.redact)
            if stream is None and not (self._credentials.api_key or self._credentials.extra):
                elsewhere = bool({"api_base", "base_url"} & self._parameters.keys())
                failure = without_key(failure, self.model_id, self._provider, elsewhere=elsewhere)
            if stream is None or not is_whole(stream, failure):
                # `from None`: the original may carry the request, and with it the key.
                raise failure from None
        keep_to_the_facts(stream, completion)

    def _arguments(self, messages: Sequence[Message]) -> dict[str, object]:
        import httpx

        arguments: dict[str, object] = {
            "timeout": httpx.Timeout(self._idle_timeout, connect=self._connect_timeout),
            **self._parameters,
            **self._credentials.extra,
            "model": self.model_id,
            "messages": wire_messages(messages),
            "custom_llm_provider": self._provider,
            "api_key": self._credentials.api_key,
            "stream": True,
            "num_retries": 0,
            "max_retries": 0,
        }
        return arguments | ({"stream_options": {"include_usage": True}} if self._asks_for_usage else {})


def _is_secret(name: str, value: object) -> bool:
    """`max_tokens` speaks of tokens, too, but a number is no secret."""
    return bool(_SECRET_NAME.search(name)) and not isinstance(value, int | float)
