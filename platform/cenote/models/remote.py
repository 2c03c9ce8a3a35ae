"""What models across a network have in common: retries, hidden credentials, usage that may be refused.

Keywords of their constructors are checked: which are for a request, which for an address.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cenote.models.base import ReasoningModel, closing, estimate_usage
from cenote.models.completion import Completion, nothing
from cenote.models.errors import (
    Credentials,
    ModelError,
    ModelInterruptedError,
    ModelRequestError,
    ModelUnavailableError,
)
from cenote.models.messages import REFUSAL, Message, ModelTurn, ReasonedChunk, ReasoningDelta
from cenote.models.retry import RetryPolicy
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds

if TYPE_CHECKING:
    import httpx

Attempt = Callable[[], AsyncGenerator[ReasonedChunk, None]]
"""Sends the request once and yields its answer; raises ModelUnavailableError where another try may help."""


async def _sleep(seconds: float) -> None:
    import asyncio  # slow to import

    await asyncio.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How waiting is done: the pause and the dice. Tests bring their own, and take no time."""

    sleep: Callable[[float], Awaitable[None]] = _sleep
    draw: Callable[[], float] = random.random


async def stream_with_retries(
    attempt: Attempt, policy: RetryPolicy, waits: Waits
) -> AsyncGenerator[ReasonedChunk, None]:
    """The chunks of the first attempt that gets through.

    Only an attempt that delivered nothing is repeated: text that a consumer has seen, parsed or run cannot be
    taken back, so a later failure is a ModelInterruptedError and the consumer decides.
    """
    number = 1
    while True:
        partial: list[str] = []
        try:
            async with closing(attempt()) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, str):
                        partial.append(chunk)
                    yield chunk
            return
        except ModelUnavailableError as error:
            if partial:
                raise _interrupted(error, "".join(partial)) from error
            error.attempts = number
            delay = policy.delay(attempt=number, error=error, draw=waits.draw())
            if delay is None:
                raise
        await waits.sleep(delay)
        number += 1


def _interrupted(error: ModelUnavailableError, partial: str) -> ModelInterruptedError:
    return ModelInterruptedError(error.message, partial, status=error.status, code=error.code)


_OPENAI: Final = (
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata "
    "modalities moderation parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options "
    "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store "
    "temperature tool_choice tools top_logprobs top_p user verbosity web_search_options"
)
_OTHERS: Final = (  # vLLM, SGLang, llama.cpp, Ollama, LM Studio, OpenRouter, Mistral, DeepSeek, Together
    "add_generation_prompt allowed_token_ids bad_words best_of cache_prompt chat_template chat_template_kwargs "
    "dynatemp_exponent dynatemp_range dry_allowed_length dry_base dry_multiplier dry_penalty_last_n enable_thinking "
    "ignore_eos include_reasoning grammar guided_choice guided_grammar guided_json guided_regex id_slot json_schema "
    "keep_alive length_penalty min_keep min_p min_tokens mirostat mirostat_eta mirostat_tau models n_predict num_ctx "
    "num_predict options plugins priority prompt_mode provider random_seed reasoning reasoning_budget "
    "reasoning_format repeat_last_n repeat_penalty repetition_penalty route safe_prompt samplers skip_special_tokens "
    "spaces_between_special_tokens stop_token_ids structured_outputs t_max_predict_ms temperature_last tfs_z "
    "thinking thinking_budget timings_per_token top_a top_k transforms truncate_prompt_tokens typical_p usage "
    "use_beam_search xtc_probability xtc_threshold think ttl return_progress"
)
REQUEST_PARAMETERS: Final = frozenset(f"{_OPENAI} {_OTHERS}".split())
"""Of chat completions, as OpenAI and servers of the same interface name them."""

_MEANT_AS_ADDRESS: Final = frozenset(
    [
        "address",
        "api_url",
        "base",
        "baseurl",
        "base_uri",
        "endpoint",
        "host",
        "openai_api_base",
        "openai_base_url",
        "server",
        "server_url",
        "url",
    ]
)


def check_parameters(parameters: Mapping[str, object], own: Iterable[str]) -> None:
    """Raises UsageError for a request parameter that no known server has. own: keywords that it may have meant."""
    for name in parameters:
        if name not in REQUEST_PARAMETERS:
            meant = ["base_url"] if name.lower() in _MEANT_AS_ADDRESS else None
            near = meant or get_close_matches(name, [*own, *REQUEST_PARAMETERS], n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"{name!r} is no setting, and no request parameter that is known; {hint}"
                f"extra_body={{{name!r}: ...}} sends it to the server anyway"
            )


def check_addresses(parameters: Mapping[str, object]) -> None:
    """For parameters that are passed on: raises UsageError for an address under a name that would be ignored."""
    for name in parameters:
        if name.lower() in _MEANT_AS_ADDRESS:
            raise UsageError(
                f"{name!r} is no setting; the address of a server is given as api_base or base_url"
            )


def one_address(**given: object) -> str | None:
    """The address of a server, which may be given under several names; None where it is under none.

    Raises UsageError for an empty one, which is a variable that was not set, and for two that differ.
    """
    found: dict[str, str] = {}
    for name, address in given.items():
        if address is None:
            continue
        if not isinstance(address, str) or not address.strip():
            raise UsageError(
                f"{name} is an address such as http://localhost:8000/v1, not {address!r:.100}; leave it out for "
                f"the provider's own"
            )
        found[name] = address
    if len(set(found.values())) > 1:
        raise UsageError(f"{' and '.join(found)} name different addresses; they mean the same, so give one")
    return next(iter(found.values()), None)


def shown_address(url: str) -> str:
    """Without a user name and password that it may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class RemoteModel(ReasoningModel):
    """A model that is asked over a network. Subclasses send one request and read one answer."""

    _address = ""  # where requests go, for errors; empty where only a provider's own library knows

    def __init__(
        self,
        model_id: str,
        credentials: Credentials,
        retry: RetryPolicy | None,
        waits: Waits | None,
        *,
        connect_timeout: float,
        idle_timeout: float,
    ) -> None:
        if not isinstance(model_id, str) or not model_id.strip():
            raise UsageError(f"model_id is the name of a model, such as 'openai/gpt-5', not {model_id!r}")
        self.model_id = model_id
        self._credentials = credentials
        self._retry = retry or RetryPolicy()
        self._waits = waits or Waits()
        check_seconds(idle_timeout, "idle_timeout")
        self._connect_timeout = connect_timeout
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
            except ModelError as error:
                if not (self._asks_for_usage and _refuses_stream_options(error)):
                    if self._address not in error.message:
                        error.message = f"{self._address}: {error.message}"
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
            raise self._too_late() from None

    def _too_late(self, error: httpx.TimeoutException | None = None) -> ModelUnavailableError:
        """Says what did not come in time, and which option sets that time."""
        import httpx

        if isinstance(error, httpx.ConnectTimeout):
            return ModelUnavailableError(
                f"no connection within {self._connect_timeout:g} s (connect_timeout)"
            )
        return ModelUnavailableError(f"no piece of an answer for {self._idle_timeout:g} s (idle_timeout)")


def _refuses_stream_options(error: ModelError) -> bool:
    return (
        isinstance(error, ModelRequestError)
        and error.status in (400, 422)
        and ("stream_options" in error.message or "include_usage" in error.message)
    )
